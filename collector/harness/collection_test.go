package harness_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize"
)

// score is a scorer program. The reward is 1 if the command exited with 0 and the work folder
// contains the file with the name of the task.
func score() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var q struct {
			TaskID   string  `json:"task_id"`
			ExitCode *int    `json:"exit_code"`
			Workdir  *string `json:"workdir"`
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil || q.ExitCode == nil || q.Workdir == nil {
			_, _ = fmt.Println(`{"error":"bad question"}`) //nolint:forbidigo // this is a program of its own
			continue
		}
		b, err := os.ReadFile(filepath.Join(*q.Workdir, q.TaskID))
		right := 0
		if err == nil && *q.ExitCode == 0 && strings.HasPrefix(string(b), "written ") {
			right = 1
		}
		_, _ = fmt.Printf("{\"reward\":%d}\n", right) //nolint:forbidigo // as above
	}
}

// A sink keeps all samples.
type sink struct {
	mu  sync.Mutex
	all []*tokenize.Sample
}

func (s *sink) Append(_ context.Context, x *tokenize.Sample, done func(error)) error {
	s.mu.Lock()
	s.all = append(s.all, x)
	s.mu.Unlock()
	done(nil)
	return nil
}

// TestCollection makes 64 attempts at once through the real proxy and a scripted engine. Each sample
// contains only its own calls, each HOME is empty at the start, and the scorer finds the files.
func TestCollection(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(engine)
	defer front.Close()
	s, err := store.Open(store.Config{Dir: filepath.Join(t.TempDir(), "sessions")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	address, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(proxy.Config{Engines: []*url.URL{address}, Sessions: s})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	defer server.Close()

	r := &rig{store: s, url: server.URL}
	cfg := r.config(t)
	b := backend(t, cfg)
	scorer, err := reward.NewCommand(reward.CommandConfig{Args: []string{executable(), "score", "-"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = scorer.Close() }()
	const n = 64
	got := &sink{}
	exact := tokenize.Exact
	c, err := collector.New(collector.Config{
		RunID: "run", Endpoints: []collector.Endpoint{{Name: "harness", Backend: b, MaxInFlight: n}},
		Scorer: scorer, Sink: got, Require: &exact,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
		for i := range n {
			id := "task-" + strconv.Itoa(i)
			text := fmt.Sprintf("calls=2 home=%s write=%s id=%s, [script:single]", id, id, id)
			if !yield(&collector.Task{ID: id, Messages: []string{text}}, nil) {
				return
			}
		}
	})
	if err != nil || len(got.all) != n {
		t.Fatalf("%d samples, %v", len(got.all), err)
	}
	for _, x := range got.all {
		if len(x.Failures) > 0 || x.Reward == nil || *x.Reward != 1 || x.Steps != 2 {
			t.Errorf("%s: failures %+v, reward %v, %d calls", x.TaskID, x.Failures, x.Reward, x.Steps)
		}
		for i := range x.Rows {
			text := ""
			for _, id := range x.Rows[i].InputIDs {
				if id < 256 {
					text += string(id)
				}
			}
			if strings.Count(text, "id=") != strings.Count(text, "id="+x.TaskID+",") || !strings.Contains(text, "id=") {
				t.Errorf("%s: a row contains another task: %s", x.TaskID, text)
			}
		}
	}
	empty(t, cfg.Dir)
	if st := s.Stats(); st.Open+st.Sealed != 0 || st.Begun != n || st.Calls != 2*n {
		t.Errorf("sessions: %+v", st)
	}
}
