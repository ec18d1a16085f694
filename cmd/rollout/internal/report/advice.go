package report

import (
	"github.com/rollout-rl/rollout/collector"
)

// Advice returns the remedy for a class of failures.
func Advice(class string) string {
	if text, ok := advice[class]; ok {
		return text
	}
	return "See the error, and rollout inspect RUN --failures."
}

// advice by class. Every class that a sample can fail with has an entry.
var advice = map[string]string{
	collector.ClassTimeoutTotal.String():    "The sample took longer than run.attempt_timeout. Raise it, or give the agent fewer steps.",
	collector.ClassTimeoutIdle.String():     "The server went silent in the middle of a reply. Look at the server's log and load; lower server.max_in_flight.",
	collector.ClassRateLimited.String():     "The server asked to slow down. Lower server.max_in_flight, or add servers.",
	collector.ClassUnavailable.String():     "The server or its model engine was down. When it is up again, collect the rest with --retry-failed.",
	collector.ClassConnection.String():      "The connection broke. Look at the network and proxies between here and the server; then --retry-failed.",
	collector.ClassServerError.String():     "The server failed by itself. Its log says why (a full PostgreSQL and a dead engine look alike); then --retry-failed.",
	collector.ClassAborted.String():         "The model engine aborted calls, as for new weights or a lack of memory. Look at its log; then --retry-failed.",
	collector.ClassBadRequest.String():      "The server refused the request. Look at the task and the agent's settings; a retry fails the same way.",
	collector.ClassMalformedCall.String():   "The model made a tool call that cannot be read. That is the model's doing: other sampling or a fixed template helps.",
	collector.ClassContextOverflow.String(): "The conversation outgrew the context window. Raise agent.context_window, or make the task shorter.",
	collector.ClassAgentError.String():      "The agent ended with an error of its own. rollout inspect RUN --failures shows the conversation's end.",
	collector.ClassToolError.String():       "A client tool failed. Look at the tool.",
	collector.ClassDecode.String():          "A reply broke the format of the token data. rollout doctor shows whether server and program fit together.",
	collector.ClassNoTurns.String():         "The server sent no token data. The model must be served by SGLang natively; rollout doctor checks that.",
	collector.ClassNoPrompt.String():        "What the model was shown cannot be known, or not as surely as tokens.require wants. Give --tokenizer, and let the server keep traces; see the reasons.",
	collector.ClassTokenMismatch.String():   "Token data contradict each other. rollout doctor, given the same settings, says which of template, tokenizer or server differs.",
	collector.ClassLost.String():            "The attempt of an earlier process could not be taken over. Collect the sample again with --retry-failed.",
	collector.ClassInternal.String():        "A fault of this program. Please report it with the error.",
}
