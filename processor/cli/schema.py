"""`ikebana schema`: print the JSON Schema of pipeline files, for editors."""

import click


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of pipeline files.

    \b
    ikebana schema > pipeline.schema.json

    Editors with YAML's language server complete and check a file that begins with the line
    "# yaml-language-server: $schema=pipeline.schema.json", if the schema is beside it.
    """
    from ikebana.processor.authoring.schema import published

    click.echo(published(), nl=False)
