package messages_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
)

func TestError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		want   string
	}{
		{400, "invalid_request_error"},
		{401, "authentication_error"},
		{402, "billing_error"},
		{403, "permission_error"},
		{404, "not_found_error"},
		{409, "invalid_request_error"},
		{413, "request_too_large"},
		{429, "rate_limit_error"},
		{500, "api_error"},
		{502, "api_error"},
		{503, "overloaded_error"},
		{504, "timeout_error"},
		{529, "overloaded_error"},
	} {
		got := string(messages.Dialect{}.Error(&translate.Error{Status: c.status, Message: "a \"b\"\x1f\xff"}))
		want := `{"type":"error","error":{"type":"` + c.want + `","message":"a \"b\"\u001f` + "\uFFFD" + `"}}`
		if got != want {
			t.Errorf("status %d: %s, want %s", c.status, got, want)
		}
	}
}

// TestOverflow checks that the error begins with the words that Claude Code looks for.
func TestOverflow(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"9 tokens":                    "prompt is too long: 9 tokens",
		"prompt is too long: 9 bytes": "prompt is too long: 9 bytes",
	} {
		e := &translate.Error{Status: 400, Code: translate.CodeOverflow, Message: message}
		if got := string(messages.Dialect{}.Error(e)); !strings.Contains(got, `"message":"`+want+`"`) {
			t.Errorf("%s: want the message %q", got, want)
		}
	}
}

// TestLateError checks the error that a client gets after a Waiting event.
func TestLateError(t *testing.T) {
	t.Parallel()
	r := replyTo(t)
	got := string(r.Failed(r.Waiting([]byte("x")), &translate.Error{Status: 502, Message: "no engine"}))
	const want = "xevent: ping\ndata: {\"type\":\"ping\"}\n\n" +
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"no engine\"}}\n\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
