import subprocess
import sys

from agents import Agent, Runner, function_tool


@function_tool
def bash(command: str) -> str:
    """Run a command in bash, and return its output."""
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


agent = Agent(name="agent", model="{model}", tools=[bash])
print(Runner.run_sync(agent, sys.stdin.read(), max_turns=None).final_output)
