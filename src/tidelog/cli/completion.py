"""`tidelog completion`: the script that makes a shell complete commands, topics and groups."""

from __future__ import annotations

import click

from tidelog.cli.options import CONTEXT, examples, output_option
from tidelog.cli.output import show_one


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        'eval "$(tidelog completion bash)"                                # in ~/.bashrc',
        'eval "$(tidelog completion zsh)"                                 # in ~/.zshrc',
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_option("script", "json")
@click.pass_context
def command(ctx: click.Context, shell: str, output: str) -> None:
    """Print the shell completion script.

    Names of topics and groups come from the broker at $TIDELOG_BOOTSTRAP, or the one on localhost.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "tidelog", "_TIDELOG_COMPLETE").source()
    show_one({"shell": shell, "script": script}, output, lambda: click.echo(script))
