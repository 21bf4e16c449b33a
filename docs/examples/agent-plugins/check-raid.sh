#!/bin/sh
# 0: all arrays are complete; 1: one lacks a disk; 2: nobody can tell.
file=${1:-/proc/mdstat}
if [ ! -r "$file" ]; then
    echo "$file cannot be read"
    exit 2
fi
# [UU] has all its disks, [U_] lacks one.
if grep -q '\[U*_[U_]*\]' "$file"; then
    echo "an array in $file lacks a disk"
    exit 1
fi
echo "all arrays are complete"
exit 0
