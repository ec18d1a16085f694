package letta_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

// A byID is a call with an id.
type byID func(ctx context.Context, c *letta.Client, id string) error

// of returns a method as a byID.
func of[T any](method func(c *letta.Client, ctx context.Context, id string) (T, error)) byID {
	return func(ctx context.Context, c *letta.Client, id string) error {
		_, err := method(c, ctx, id)
		return err
	}
}

// withIDs are all calls with an id in the path.
var withIDs = map[string]byID{
	"Agent": of((*letta.Client).Agent), "Conversation": of((*letta.Client).Conversation),
	"SystemText": of((*letta.Client).SystemText), "Run": of((*letta.Client).Run), "RunSteps": of((*letta.Client).RunSteps),
	"RunMessages": of((*letta.Client).RunMessages), "Step": of((*letta.Client).Step), "StepMetrics": of((*letta.Client).StepMetrics),
	"StepTrace": of((*letta.Client).StepTrace), "StepMessages": of((*letta.Client).StepMessages),
	"DeleteAgent": func(ctx context.Context, c *letta.Client, id string) error { return c.DeleteAgent(ctx, id) },
	"PatchAgent": func(ctx context.Context, c *letta.Client, id string) error {
		_, err := c.PatchAgent(ctx, id, struct{}{})
		return err
	},
	"Cancel": func(ctx context.Context, c *letta.Client, id string) error { _, err := c.Cancel(ctx, id); return err },
	"SetFeedback": func(ctx context.Context, c *letta.Client, id string) error {
		_, err := c.SetFeedback(ctx, id, letta.Feedback{})
		return err
	},
	"Send": func(ctx context.Context, c *letta.Client, id string) error {
		_, err := c.Send(ctx, id, hello(), "", new(tokenize.Reply))
		return err
	},
	"SendWith": func(ctx context.Context, c *letta.Client, id string) error {
		_, err := c.SendWith(ctx, letta.SendOptions{ConversationID: id, Request: hello(), Reply: func() *tokenize.Reply { return new(tokenize.Reply) }})
		return err
	},
}

// inQueries are the calls with the id in the query.
var inQueries = map[string]byID{
	"LastRun": of((*letta.Client).LastRun), "CreateConversation": of((*letta.Client).CreateConversation), "Conversations": of((*letta.Client).Conversations),
}

// TestIDsInPaths checks that any id is one path segment, and that an empty id sends nothing.
func TestIDsInPaths(t *testing.T) {
	t.Parallel()
	var asked []string
	c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		w.WriteHeader(http.StatusNotFound)
	})
	for name, call := range withIDs {
		for id, want := range map[string]string{
			"a/b": "/a%2Fb", "..": "/%2E%2E", ".": "/%2E", "../agents/": "/..%2Fagents%2F", "x?y=1": "/x%3Fy=1", "x#y": "/x%23y", "100%": "/100%25",
			"a b": "/a%20b", "é\n": "/%C3%A9%0A", "{}": "/%7B%7D",
		} {
			asked = nil
			_ = call(t.Context(), c, id)
			if len(asked) == 0 {
				t.Errorf("%s(%q) asks nothing", name, id)
			}
			for _, uri := range asked {
				path, _, _ := strings.Cut(uri, "?")
				if parts := strings.Count(path, "/"); !strings.Contains(path+"/", want+"/") || parts < 3 || parts > 5 || strings.Contains(path, "{}") {
					t.Errorf("%s(%q) asks %s, want %q as one part of it", name, id, uri, want)
				}
			}
		}
	}
	for _, calls := range []map[string]byID{withIDs, inQueries} {
		for name, call := range calls {
			asked = nil
			err := call(t.Context(), c, "")
			if err == nil || !strings.Contains(err.Error(), "empty id") || !errors.Is(err, letta.ErrRejected) || len(asked) > 0 {
				t.Errorf("%s of no id asks %q: %v", name, asked, err)
			}
		}
	}
}

// TestGateManyModels finds a model in a list of 200,000 with almost no memory. It is not
// parallel, because it reads the memory of the process.
func TestGateManyModels(t *testing.T) {
	const models = 200_000
	served := 0
	c := lettatest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		var b []byte
		b = append(b, '[')
		for i := range models {
			b = fmt.Appendf(b, `{"handle":"sglang/model-%06d","name":"model-%06d","model":"model-%06d","model_endpoint":"http://10.0.0.5:30000/v1","model_endpoint_type":"openai","provider_name":"sglang","context_window":%d,"put_inner_thoughts_in_kwargs":false,"temperature":1.0,"strict":false,"tags":["a","b"],"display_name":"%s"}`,
				i, i, i, 1000+i, strings.Repeat("x", 200))
			if i < models-1 {
				b = append(b, ',')
			}
			if len(b) > 1<<16 || i == models-1 {
				served += len(b)
				_, _ = w.Write(b)
				b = b[:0]
			}
		}
		_, _ = w.Write([]byte{']'})
	})
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	most := uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			time.Sleep(time.Millisecond)
		}
	}()
	found, err := c.FindModel(t.Context(), "sglang/model-123456")
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if found.Count != models || found.Model == nil || found.Model.ContextWindow != 1000+123456 {
		t.Errorf("found %+v", found)
	}
	grown := int64(most) - int64(before.HeapInuse)
	t.Logf("%.0f MB of models took %.1f MB", float64(served)/1e6, float64(grown)/1e6)
	if grown > 32<<20 {
		t.Errorf("the list of %d bytes took %d bytes of memory", served, grown)
	}
}

// TestFindModel checks valid and invalid lists of models.
func TestFindModel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body, want, err string
		count                 int
	}{
		{name: "found", body: `[{"handle":"a/b"},{"handle":"c/d","name":"n"}]`, want: "c/d", count: 2},
		{name: "near", body: `[{"handle":"a/b"},{"handle":"c/e"}]`, want: "near c/e a/b", count: 2},
		{name: "within", body: `[{"handle":"c/e"},{"handle":"x/c/d"},{"handle":"C/D-2"},{"handle":"c/e"}]`, want: "near C/D-2 x/c/d c/e", count: 4},
		{name: "not near, but all there is", body: `[{"handle":"zzzzzzzz"}]`, want: "near zzzzzzzz", count: 1},
		{name: "many", body: `[{"handle":"a"},{"handle":"bbbb"},{"handle":"c"},{"handle":"c/f"},{"handle":"d"},{"handle":"e/d"},{"handle":"cd"}]`, want: "near c/f e/d cd c d", count: 7},
		{name: "no handle, and one that is too long", body: `[{"name":"x"},{"handle":"` + strings.Repeat("c/d", 1000) + `"}]`, want: "near ", count: 2},
		{name: "empty", body: ` [ ] `, want: "near "},
		{name: "null", body: `null`, want: "near "},
		{name: "no list", body: `{"detail":"x"}`, err: "want a list"},
		{name: "cut", body: `[{"handle":"a/b"},`, err: "cannot decode the answer"},
		{name: "no JSON", body: `[{"handle":"a/b"},{]`, err: "cannot decode the answer"},
		{name: "more behind it", body: `[{"handle":"c/d"}] x`, err: "unexpected data after the list"},
		{name: "a huge element", body: `[{"handle":"` + strings.Repeat("x", 6<<20) + `"}]`, err: "list element"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := lettatest.Serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(tt.body)) }, func(cfg *letta.ClientConfig) { cfg.ReadRetries = -1 })
			found, err := c.FindModel(t.Context(), "c/d")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := "near " + strings.Join(found.Near, " ")
			if found.Model != nil {
				got = found.Model.Handle
			}
			if got != tt.want || found.Count != tt.count {
				t.Errorf("%q of %d, want %q of %d", got, found.Count, tt.want, tt.count)
			}
		})
	}
}
