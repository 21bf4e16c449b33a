"""The parts of fault isolation. The way in is `muster.certify.isolate`. Everything here is pure."""
