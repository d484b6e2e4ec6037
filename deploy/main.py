"""The `ikebana` command as the file that spark-submit wants, in cluster mode."""

from ikebana.processor.cli.main import main

main()
