package reward_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/reward"
)

// TestHostileCommands checks that a misbehaving program loses one reward in bounded time with a
// clear error, and that the next rollout gets its own reward.
func TestHostileCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		output string
		err    string // error of the score; empty: none
		next   string // error of the next score
	}{
		{"echo", "", ""},
		{"another", "is for request 0, want 1", ""},
		{"twice", "wrote more than one line", ""},
		{"late", "", `wrote "{\"reward\":0}\n" before it received a request`},
		{"flood", "longer than 1048576 bytes", ""},
		{"shut", "closed its standard input or output", ""},
		{"deaf", "", "no answer within 4s"},
		{"middle", "exited without answering: exit status 3", ""},
		{"hang", "no answer within 4s", ""},
		{"stderr", "", ""},
	} {
		t.Run(tt.output, func(t *testing.T) {
			t.Parallel()
			c := command(t, reward.CommandConfig{Timeout: 4 * time.Second}) // includes the start of the program
			began := time.Now()
			score := func(output, want string) {
				t.Helper()
				r, err := asked(t, c, output)
				switch {
				case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("%s: %v, want %q", output, err, want)
				case want == "" && (err != nil || r.Value == nil || *r.Value != 1):
					t.Errorf("%s: %v, %v, want 1", output, r.Value, err)
				}
			}
			score(tt.output, tt.err)
			if tt.output == "late" {
				time.Sleep(time.Second) // until the second answer is there
			}
			score("1", tt.next) // one byte: 1
			score("1", "")      // always succeeds
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestCommandThatAnswersWithoutEnd checks that no rollout gets another one's reward from a
// program that writes endless answers: the first answer or the check before the second question
// detects it.
func TestCommandThatAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Timeout: 20 * time.Second})
	_, first := asked(t, c, "lines")
	time.Sleep(50 * time.Millisecond)
	_, second := asked(t, c, "1")
	if (first == nil) == (second == nil) {
		t.Errorf("scores: %v and %v, want one error", first, second)
	}
}

// TestLoudCommand checks that the standard error of a program is bounded.
func TestLoudCommand(t *testing.T) {
	t.Parallel()
	var said lockedBuffer
	c := command(t, reward.CommandConfig{Timeout: 20 * time.Second, Stderr: &said})
	if _, err := asked(t, c, "stderr"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(said.text()); n < 200<<10 || n > 300<<10 || !strings.Contains(said.text(), "the rest is dropped") {
		t.Errorf("%d bytes were passed on", n)
	}
}

// TestCommandKillsChildren checks that the children of a program do not outlive it after a
// timeout, Kill or Close.
func TestCommandKillsChildren(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"timeout", "kill", "close"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			timeout, output := time.Minute, "family:"+pids
			switch how {
			case "timeout":
				timeout = 5 * time.Second // enough for the program to start its child
			case "close":
				output = "answered " + output
			}
			c := command(t, reward.CommandConfig{Timeout: timeout})
			scored := make(chan error, 1)
			go func() {
				_, err := asked(t, c, output)
				scored <- err
			}()
			var child, grandchild int
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				b, _ := os.ReadFile(pids)
				if n, _ := fmt.Sscan(string(b), &child, &grandchild); n == 2 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the program started nothing")
				}
			}
			began := time.Now()
			if how == "kill" {
				c.Kill()
			}
			if err := <-scored; (err == nil) != (how == "close") {
				t.Errorf("Score = %v", err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			for _, pid := range []int{child, grandchild} {
				gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) }
				for end := time.Now().Add(30 * time.Second); !gone() && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				if !gone() {
					t.Errorf("process %d lives", pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

// zombie reports whether a process has exited and was not reaped. Here the system reaps it.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && strings.HasPrefix(rest, "Z")
}

// TestCloseOfHungCommands checks that several hung programs delay Close no longer than one.
func TestCloseOfHungCommands(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Processes: 4, Timeout: time.Hour})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := asked(t, c, "deaf"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 15*time.Second { // one after another: 20 s
		t.Errorf("Close took %v, want about 5s", took)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
