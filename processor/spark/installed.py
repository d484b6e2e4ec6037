"""Where the Spark that comes with pyspark lies."""

from ikebana.processor.ground.packages import folder_of

_found = folder_of("pyspark")
assert _found is not None, "pyspark is installed with ikebana"
HOME = _found
"""The folder of pyspark."""
