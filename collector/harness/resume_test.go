package harness_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// collect is a process that makes one attempt and is killed. Its argument is the folder, "yes" or
// "no" for a supervisor, and the prompt.
func collect(arg string) {
	part := strings.SplitN(arg, "|", 3)
	s, err := store.Open(store.Config{Dir: filepath.Join(part[0], "sessions")})
	if err != nil {
		panic(err)
	}
	r := &rig{store: s}
	r.url = httptest.NewServer(r).URL
	b, err := harness.NewBackend(r.configIn(filepath.Join(part[0], "attempts"), part[1] == "yes"))
	if err != nil {
		panic(err)
	}
	g, err := b.Open(context.Background(), attempt(part[2], 3))
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Println("open", g.ID()) //nolint:forbidigo // this is a program of its own
	reply, err := g.Run(context.Background())
	_, _ = fmt.Println("ran", reply != nil, err) //nolint:forbidigo // as above
	time.Sleep(time.Hour)
}

// A dead is a process that made one attempt and was killed.
type dead struct {
	dir, id, prompt string
}

// killed runs collect until its output has the number of lines and until returns true, and kills it.
func killed(t *testing.T, prompt string, supervised bool, lines int, until func() bool) dead {
	t.Helper()
	d := dead{dir: t.TempDir(), prompt: prompt}
	if err := os.Mkdir(filepath.Join(d.dir, "attempts"), 0o700); err != nil {
		t.Fatal(err)
	}
	how := map[bool]string{true: "yes", false: "no"}[supervised]
	cmd := exec.CommandContext(t.Context(), executable(), "collect", d.dir+"|"+how+"|"+prompt)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	for range lines {
		if !in.Scan() {
			t.Fatal("the process ended")
		}
		if id, ok := strings.CutPrefix(in.Text(), "open "); ok {
			d.id = id
		} else if !strings.HasPrefix(in.Text(), "ran true <nil>") {
			t.Fatal(in.Text())
		}
	}
	for end := time.Now().Add(time.Minute); !until(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the agent did not start its process")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return d
}

// next returns the store and a backend of the next process.
func (d dead) next(t *testing.T) (*store.Store, *harness.Backend) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: filepath.Join(d.dir, "sessions")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := backend(t, (&rig{store: s, url: "http://127.0.0.1:1"}).configIn(filepath.Join(d.dir, "attempts"), true))
	return s, b
}

// TestKilledAfterSeal checks that the next process takes over an attempt whose session was sealed,
// with the same tokens, the exit code and the work folder. It does not know the key of the session,
// but no text contains it.
func TestKilledAfterSeal(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		d := killed(t, "calls=2 exit=4 write=kept.txt env=1", true, 2, func() bool { return true })
		s, b := d.next(t)
		left := collector.OpenAttempt{N: 3}
		if known {
			left.AgentID = d.id
		}
		a := attempt(d.prompt, 3)
		a.Kind = collector.KindReattach
		g, err := b.Reattach(t.Context(), a, left)
		if err != nil {
			t.Fatal(err)
		}
		r, err := g.Run(t.Context())
		if err == nil {
			err = collector.CheckReply(t.Context(), collector.Config{}, a.Task, r, g.Prompts)
		}
		const answer = "the key is (session key),(secret),(secret)"
		if err != nil || g.ID() != d.id || *r.ExitCode != 4 || !strings.HasSuffix(r.Redact(r.Output), answer) || !strings.HasSuffix(r.Output, ","+otherSecret+","+referredSecret) || len(r.Sends) != 1 || r.Sends[0].Usage.Steps != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		if text := textOf(r); secretIn(text) != "" || strings.Count(text, answer) < 4 {
			t.Errorf("the texts contain a secret, or the agent did not print it: %s", text)
		}
		prompt := tokensOf("user", d.prompt+" leak=") // the tokens contain the key, as the model read it
		if n := len(prompt) - 1; !slices.Equal(r.Sends[0].Turns[0].PromptIDs[:n], prompt[:n]) {
			t.Errorf("prompt %v, want %v", r.Sends[0].Turns[0].PromptIDs, prompt)
		}
		if b, err := os.ReadFile(filepath.Join(r.Workdir, "kept.txt")); err != nil || !strings.HasPrefix(string(b), "written the key is ") {
			t.Errorf("the scorer would read %q, %v", b, err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		empty(t, filepath.Join(d.dir, "attempts"))
		if st := s.Stats(); st.Sealed+st.Open != 0 {
			t.Errorf("sessions are left: %+v", st)
		}
	}
}

// TestLostAnswer checks that an attempt is gone if its final answer contained a secret and the file with
// the answer is missing or has changed.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "another answer"} {
		d := killed(t, "calls=1 env=1", true, 2, func() bool { return true })
		_, b := d.next(t)
		a := attempt(d.prompt, 3)
		file := filepath.Join(d.dir, "attempts", "rollout-"+harness.Mark(a.RunID, a.Key, a.N), "answer")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Reattach(t.Context(), a, collector.OpenAttempt{N: 3}); !errors.Is(err, collector.ErrGone) || !strings.Contains(err.Error(), "final answer") {
			t.Errorf("%q: Reattach = %v, want gone", text, err)
		}
		empty(t, filepath.Join(d.dir, "attempts"))
	}
}

// died checks that a process dies.
func died(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); alive(pid) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if alive(pid) {
		t.Errorf("process %d is alive", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestKilledDuringRun checks that an attempt whose command was running is gone, and that the next
// process kills what is left of it, even if there was no supervisor.
func TestKilledDuringRun(t *testing.T) {
	t.Parallel()
	for _, supervised := range []bool{true, false} {
		for _, how := range []string{"reattach", "kept", "clean", "open"} {
			t.Run(fmt.Sprintf("supervised=%v/%s", supervised, how), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "pid")
				prompt := "calls=1 sleep=1h child=" + file
				d := killed(t, prompt, supervised, 1, func() bool {
					b, _ := os.ReadFile(file)
					return strings.HasSuffix(string(b), "\n")
				})
				pid := pidIn(t, file)
				if !supervised && !alive(pid) {
					t.Error("the process died by itself, so this test shows nothing")
				}
				s, b := d.next(t)
				attempts := filepath.Join(d.dir, "attempts")
				switch how {
				case "reattach":
					_, err := b.Reattach(t.Context(), attempt(prompt, 3), collector.OpenAttempt{N: 3, AgentID: d.id})
					if !errors.Is(err, collector.ErrGone) {
						t.Errorf("Reattach = %v, want gone", err)
					}
				case "kept":
					cfg := (&rig{store: s, url: "http://127.0.0.1:1"}).configIn(attempts, true)
					cfg.Keep = true
					b := backend(t, cfg)
					if _, err := b.Reattach(t.Context(), attempt(prompt, 3), collector.OpenAttempt{N: 3, AgentID: d.id}); !errors.Is(err, collector.ErrGone) {
						t.Errorf("Reattach = %v, want gone", err)
					}
					died(t, pid)
					if n, err := harness.Leftovers(attempts, runOf(prompt)); len(n) != 1 || err != nil {
						t.Errorf("the folder was not kept: %v, %v", n, err)
					}
					return
				case "clean":
					a := attempt(prompt, 3)
					if n, err := harness.Clean(t.Context(), attempts, "another run", nil); n != 0 || err != nil || !supervised && !alive(pid) {
						t.Errorf("Clean of another run = %d, %v; the process is alive: %v", n, err, alive(pid))
					}
					keep := func(mark, id string) bool { return id == d.id && mark == harness.Mark(a.RunID, a.Key, a.N) }
					if n, err := harness.Clean(t.Context(), attempts, runOf(prompt), keep); n != 0 || err != nil {
						t.Errorf("Clean = %d, %v, want to keep the attempt", n, err)
					}
					died(t, pid) // only the folder is kept
					if n, err := harness.Clean(t.Context(), attempts, runOf(prompt), nil); n != 1 || err != nil {
						t.Errorf("Clean = %d, %v, want 1", n, err)
					}
				case "open":
					// The journal has lost the attempt, so its number is used again.
					a := attempt(prompt, 3)
					a.Task.Messages = []string{"calls=1"}
					g := open(t, b, a)
					if err := g.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				empty(t, attempts)
				died(t, pid)
			})
		}
	}
}
