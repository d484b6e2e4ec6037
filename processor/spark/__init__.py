"""The Spark shell: the only importer of pyspark."""
