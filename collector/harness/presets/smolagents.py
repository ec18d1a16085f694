import subprocess
import sys

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool


@tool
def bash(command: str) -> str:
    """Run a command in bash, and return its output.

    Args:
        command: The command.
    """
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


agent = ToolCallingAgent([bash], OpenAIModel("{model}"), max_steps=1000, verbosity_level=LogLevel.OFF)
print(agent.run(sys.stdin.read()))
