"""What a log or a tool's output means. One parser per format; the agent, certification and `muster read` share them.

A format is one module with `detect(sample) -> score` and `parse(inputs, context) -> Report`, listed in `formats.py`.
"""
