import os
import sys

from openhands.sdk import LLM, Conversation
from openhands.sdk.conversation.response_utils import get_agent_final_response
from openhands.tools.preset.default import get_default_agent

agent = get_default_agent(llm=LLM.load_from_env(), cli_mode=True)
conversation = Conversation(agent=agent, workspace=os.getcwd(), visualizer=None)
conversation.send_message(sys.stdin.read())
conversation.run()
print(get_agent_final_response(conversation.state.events))
