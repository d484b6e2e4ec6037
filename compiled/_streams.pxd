# cython: language_level=3
# Streams that changes are taken apart into: see `arrangements.run`.

cdef enum:
    # What follows a text: the end of a key or a value, no value at all, or a number of a column.
    END = 0
    NOTHING = 1
    COLUMN = 2
    # How a column's numbers are written: as digits, as one byte, as eight bytes.
    DIGITS = 0
    BYTE = 1
    EIGHT = 2
