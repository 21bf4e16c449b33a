"""Programs that put a node, a link or a group of GPUs to work and say what they measured.

Only the standard library and PyTorch are used, and nothing else of Muster, so that the folder runs alone, as one
archive, in any image with PyTorch (Python 3.10 or newer). PyTorch is imported when a program needs it, not before.
"""
