package reward_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
)

// TestMain runs the test binary as a scorer if REWARD_TEST_SCORER is set.
func TestMain(m *testing.M) {
	if os.Getenv("REWARD_TEST_SCORER") == "" {
		m.Run()
		return
	}
	in := bufio.NewScanner(os.Stdin)
	for n := 1; in.Scan(); n++ {
		var q struct {
			Output   string   `json:"output"`
			Answer   *string  `json:"answer"`
			Messages []string `json:"messages"`
			ID       int64    `json:"id"`
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stdout, `{"error":"bad question"}`)
			continue
		}
		if line, ok := strings.CutPrefix(q.Output, "raw:"); ok {
			fmt.Fprintln(os.Stdout, line)
			continue
		}
		if _, pids, ok := strings.Cut(q.Output, "family:"); ok { // hangs, with a child and a grandchild
			child := exec.Command("sh", "-c", `sleep 3600 & echo $$ $! >>"$0"; wait`, pids)
			child.Stderr = os.Stderr // an open stderr would block Wait
			if err := child.Start(); err != nil {
				panic(err)
			}
			if strings.HasPrefix(q.Output, "answered") {
				fmt.Fprintln(os.Stdout, `{"reward":1}`)
			}
			time.Sleep(time.Hour)
		}
		switch q.Output {
		case "question": // returns the question
			fmt.Fprintf(os.Stdout, `{"reward":1,"details":{"q":%s}}`+"\n", in.Bytes())
		case "traceback":
			fmt.Fprint(os.Stderr, "Traceback (most recent call last):\n  File \"score.py\", line 3\nKeyError: 'difficulty'\n\n")
			os.Exit(1) //nolint:forbidigo // as below
		case "die":
			panic("dies")
		case "hang":
			time.Sleep(time.Hour)
		case "echo": // with the requested id
			fmt.Fprintf(os.Stdout, `{"id":%d,"reward":1}`+"\n", q.ID)
		case "another": // with the id of another question
			fmt.Fprintf(os.Stdout, `{"id":%d,"reward":1}`+"\n", q.ID-1)
		case "twice":
			fmt.Fprint(os.Stdout, `{"reward":1}`+"\n"+`{"reward":0}`+"\n")
		case "late": // a second answer after the first was read
			fmt.Fprintln(os.Stdout, `{"reward":1}`)
			time.Sleep(50 * time.Millisecond)
			fmt.Fprintln(os.Stdout, `{"reward":0}`)
		case "flood": // one endless line
			for {
				if _, err := os.Stdout.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
					return
				}
			}
		case "lines": // endless lines
			for {
				if _, err := fmt.Fprintln(os.Stdout, `{"reward":1}`); err != nil {
					return
				}
			}
		case "stderr": // more than the limit
			for range 64 {
				fmt.Fprintln(os.Stderr, strings.Repeat("loud ", 1<<14))
			}
			fmt.Fprintln(os.Stdout, `{"reward":1}`)
		case "shut": // closes its output and keeps running
			_ = os.Stdout.Close()
			time.Sleep(time.Hour)
		case "deaf": // stops reading
			fmt.Fprintln(os.Stdout, `{"reward":1}`)
			time.Sleep(time.Hour)
		case "middle":
			fmt.Fprint(os.Stdout, `{"rew`)
			os.Exit(3) //nolint:forbidigo // this is the main of the program that is played
		case "long":
			fmt.Fprintln(os.Stdout, strings.Repeat("x", 3<<20))
		default:
			fmt.Fprintf(os.Stdout, `{"reward":%d,"details":{"nth":%d}}`+"\n", len(q.Output), n)
		}
	}
}

func command(t *testing.T, cfg reward.CommandConfig) *reward.Command {
	t.Helper()
	cfg.Args = []string{must(os.Executable())}
	cfg.Env = append(os.Environ(), "REWARD_TEST_SCORER=1")
	c := must(reward.NewCommand(cfg))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asked asks the scorer about an output.
func asked(t *testing.T, c collector.Scorer, output string) (collector.Reward, error) {
	t.Helper()
	return c.Score(t.Context(), &collector.Task{ID: "t", Messages: []string{"m"}}, &collector.Reply{Output: output})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Timeout: 20 * time.Second})
	steps := []struct {
		output  string
		want    float64 // if err is empty
		details string
		err     string
	}{
		{"abc", 3, `{"nth":1}`, ""},
		{"ab", 2, `{"nth":2}`, ""}, // the same process
		{`raw:{"error":"cannot judge"}`, 0, "", "cannot judge"},
		{`raw:{"reward":null,"details":null}`, -1, "", ""},
		{`raw:{"reward":1,"details":[5]}`, 0, "", "not a JSON object"},
		{"die", 0, "", "exit status 2"},
		{"abcd", 4, `{"nth":1}`, ""}, // a new process
		{"raw:hello", 0, "", "hello"},
		{"a", 1, `{"nth":1}`, ""},
		{"long", 0, "", "longer"},
		{`raw:{"reward":NaN}`, 0, "", "NaN"},
		{`raw:{"reward":-Infinity}`, 0, "", "-Infinity"},
		{`raw:{"reward":1e999}`, 0, "", "1e999"},
		{"", 0, `{"nth":2}`, ""}, // the line was JSON
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := c.Score(stopped, &collector.Task{}, &collector.Reply{Output: "hang"}); err == nil {
		t.Error("Score of a stopped run = nil, want an error")
	}
	for _, s := range steps {
		r, err := asked(t, c, s.output)
		switch {
		case s.err != "":
			if err == nil || !strings.Contains(err.Error(), s.err) {
				t.Errorf("%q: error %v, want %q", s.output, err, s.err)
			}
		case err != nil:
			t.Errorf("%q: %v", s.output, err)
		case s.want < 0:
			if r.Value != nil || r.Details != nil {
				t.Errorf("%q: reward %v %s, want none", s.output, *r.Value, r.Details)
			}
		case r.Value == nil || *r.Value != s.want || string(r.Details) != s.details:
			t.Errorf("%q: reward %v %s, want %v %s", s.output, r.Value, r.Details, s.want, s.details)
		}
	}
}

func TestCommandIsShared(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Processes: 2, Timeout: 20 * time.Second})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			output := strings.Repeat("x", i)
			if i%10 == 9 {
				output = "die"
			}
			r, err := asked(t, c, output)
			if (err != nil) != (output == "die") || err == nil && (r.Value == nil || *r.Value != float64(i)) {
				t.Errorf("score %d of %s = %v, %v", i, output, r.Value, err)
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := asked(t, c, ""); err == nil {
		t.Fatal("Score after Close = nil, want an error")
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	t.Parallel()
	c := must(reward.NewCommand(reward.CommandConfig{Args: []string{"/nonexistent/scorer"}}))
	if _, err := asked(t, c, ""); err == nil {
		t.Fatal("Score = nil, want an error")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reward.NewCommand(reward.CommandConfig{}); err == nil {
		t.Fatal("NewCommand without a program = nil, want an error")
	}
}
