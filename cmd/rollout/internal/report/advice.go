package report

import (
	"github.com/rollout-rl/rollout/collector"
)

// Advice returns advice on how to deal with a class of failures.
func Advice(class string) string {
	if text, ok := advice[class]; ok {
		return text
	}
	return "See the error message. For details, run rollout inspect RUN --failures."
}

// advice maps a class to its advice. Every class with which a sample can fail has an entry.
var advice = map[string]string{
	collector.ClassTimeoutTotal.String():    "The sample took longer than run.attempt_timeout or harness.timeout. Raise this timeout, or allow the agent fewer steps.",
	collector.ClassTimeoutIdle.String():     "The server stopped during a reply. Check its log and load, or lower server.max_in_flight.",
	collector.ClassRateLimited.String():     "The server is rate limiting. Lower server.max_in_flight, or add servers.",
	collector.ClassUnavailable.String():     "The server or its model engine was down. When it is up again, collect the samples again.",
	collector.ClassConnection.String():      "The connection broke. Check the network and the proxies to the server, then collect the samples again.",
	collector.ClassServerError.String():     "The server failed. Check its log, then collect the samples again. The same error occurs if PostgreSQL has no free connections or if the engine is dead.",
	collector.ClassAborted.String():         "The model engine aborted calls, for example to load weights or for lack of memory. Check its log, then collect the samples again.",
	collector.ClassBadRequest.String():      "The server or the engine rejected the request. Check the task and the agent's settings; a retry would fail too.",
	collector.ClassMalformedCall.String():   "The model made an invalid tool call. Other sampling settings or a corrected template can help.",
	collector.ClassContextOverflow.String(): "The conversation exceeded the context window. Raise agent.context_window or, for a harness, the engine's context length, or shorten the task.",
	collector.ClassAgentError.String():      "The agent ended with an error. To see the end of the conversation, run rollout inspect RUN --failures.",
	collector.ClassToolError.String():       "A client tool failed. Check the tool.",
	collector.ClassNoCalls.String():         "The command ended without a model call. Check that the command uses the placeholder {base_url}, and run it by hand.",
	collector.ClassEmptyAnswer.String():     "The agent ended without a final answer. To see the end of the conversation, run rollout inspect RUN --failures.",
	collector.ClassForeign.String():         "No conversation of the agent contains the task's prompt. Check that the command uses the placeholder {prompt}, and that no other program uses the key.",
	collector.ClassDecode.String():          "A reply had invalid token data. Run rollout doctor to check that rollout supports the server.",
	collector.ClassNoTurns.String():         "The server returned no token data. The model needs an sglang provider. To check this, run rollout doctor.",
	collector.ClassNoPrompt.String():        "The prompts are unknown, or their grade is below tokens.require. Pass --tokenizer, and let the server store traces. For details, see the reasons.",
	collector.ClassTokenMismatch.String():   "The token data are inconsistent. Run rollout doctor with the same settings to find out whether the template, the tokenizer or the server is the cause.",
	collector.ClassUntrained.String():       "No call of the sample can be trained, because the agent did not read any answer. Check the log of the agent.",
	collector.ClassLost.String():            "An attempt that an earlier process started could not be reattached. Collect the sample again.",
	collector.ClassInternal.String():        "This is a bug in rollout. Please report it together with the error.",
}
