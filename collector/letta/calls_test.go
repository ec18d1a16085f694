package letta_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestOtherCalls checks requests and answers of the calls that this module does not use.
func TestOtherCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, request, body string // as sent
		answer              string
		call                func(ctx context.Context, c *letta.Client) (string, error) // shows the decoded answer
		want                string
	}{
		{"RunTool", "POST /v1/tools/run", `{"name":"f","source_code":"def f(x): pass","args":{"x":1},"json_schema":{"name":"f"}}`, `{"id":"null","tool_return":"7","status":"success","stdout":null}`, func(ctx context.Context, c *letta.Client) (string, error) {
			out, err := c.RunTool(ctx, &letta.ToolRun{Name: "f", SourceCode: "def f(x): pass", Args: map[string]any{"x": 1}, JSONSchema: []byte(`{"name":"f"}`)})
			return show(out, err, func(r *letta.ToolRan) string { return r.Status + " " + r.Return })
		}, "success 7"},
		{"CountAgents", "GET /v1/agents/count?match_all_tags=true&tags=a&tags=b", "", `12`, func(ctx context.Context, c *letta.Client) (string, error) {
			n, err := c.CountAgents(ctx, "a", "b")
			return show(&n, err, func(n *int) string { return fmt.Sprint(*n) })
		}, "12"},
		{"SendWith", "POST /v1/conversations/conv-1/messages", `{"messages":[{"role":"user","content":"hi"}],"streaming":false}`, `{"messages":[],"stop_reason":{"message_type":"stop_reason","stop_reason":"end_turn"},"usage":{"step_count":1},"turns":[{"role":"assistant","content":"yo","output_ids":[7,8],"output_token_logprobs":[[-0.5,7,null],[-0.25,8,null]]}]}`, func(ctx context.Context, c *letta.Client) (string, error) {
			reply := new(tokenize.Reply)
			out, err := c.SendWith(ctx, letta.SendOptions{ConversationID: "conv-1", Request: hello(), Reply: func() *tokenize.Reply { return reply }})
			return show(out, err, func(r *letta.LettaResponse) string {
				return fmt.Sprint(r.StopReason, " ", len(reply.Turns), " ", reply.Turns[0].OutputIDs)
			})
		}, "end_turn 1 [7 8]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var request, body string
			c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				request, body = r.Method+" "+r.URL.RequestURI(), string(raw)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, tt.answer)
			})
			got, err := tt.call(t.Context(), c)
			if err != nil || got != tt.want {
				t.Errorf("read %q, %v, want %q", got, err, tt.want)
			}
			if request != tt.request || body != tt.body {
				t.Errorf("sent %s with %q, want %s with %q", request, body, tt.request, tt.body)
			}
		})
		t.Run(tt.name+" refused", func(t *testing.T) {
			t.Parallel()
			c := lettatest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"detail":"NOT_FOUND"}`, http.StatusNotFound)
			})
			if _, err := tt.call(t.Context(), c); !letta.IsNotFound(err) {
				t.Errorf("error %v, want the server's 404", err)
			}
		})
	}
}

func show[T any](v *T, err error, text func(*T) string) (string, error) {
	if err != nil {
		return "", err
	}
	return text(v), nil
}

// TestPages checks that a message that is twice on one page is two messages, that one that an earlier
// page had is not added again, and that a list ends if the server ignores the cursor.
func TestPages(t *testing.T) {
	t.Parallel()
	message := func(id string, n int) string {
		return fmt.Sprintf(`{"message_type":"user_message","id":"message-%s","content":"%d"}`, id, n)
	}
	full := make([]string, 1000)
	for i := range full {
		full[i] = message("a", i/2) // two of each
	}
	asked := 0
	for name, tt := range map[string]struct {
		second string
		want   int
	}{
		"the cursor counts":           {"[" + message("a", 499) + "," + message("b", 1) + "]", 1001},
		"the server ignores a cursor": {"[" + strings.Join(full, ",") + "]", 1000},
	} {
		asked = 0
		c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked > 2 {
				t.Errorf("%s: a third page: %s", name, r.URL)
			}
			if r.URL.Query().Get("after") == "" {
				_, _ = io.WriteString(w, "["+strings.Join(full, ",")+"]")
				return
			}
			_, _ = io.WriteString(w, tt.second)
		})
		got, err := c.RunMessages(t.Context(), "run-1")
		if err != nil || len(got) != tt.want || asked != 2 {
			t.Errorf("%s: %d messages by %d requests, %v, want %d", name, len(got), asked, err, tt.want)
		}
	}
}
