import subprocess
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def bash(command: str) -> str:
    """Run a command in bash, and return its output."""
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


agent = create_agent(ChatOpenAI(model="{model}"), [bash])
result = agent.invoke({"messages": [("user", sys.stdin.read())]}, {"recursion_limit": 1000})
print(result["messages"][-1].text)
