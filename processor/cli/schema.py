"""`ikebana schema`: print the JSON Schema of pipeline files, for editors."""

import click


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of pipeline files.

    Editors with YAML's language server complete and check a file that begins with the line
    "# yaml-language-server: $schema=pipeline.schema.json", once the schema is beside it.
    """
    from ikebana.processor.authoring.schema import published

    click.echo(published(), nl=False)
