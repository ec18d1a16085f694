package subprocess_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/subprocess"
)

// A program can try to keep a process alive in several ways. leave contains these ways, as shell
// scripts that print the numbers of all processes that must die.
var leave = map[string]string{
	"child":            `sleep 3600 & echo $! `,
	"its own group":    `set -m; sleep 3600 & echo $! `,
	"its own session":  `setsid sh -c 'echo $$; exec sleep 3600' & wait_for 1`,
	"a double fork":    `(setsid sh -c '(echo $$ >&2; sh -c "echo \$\$; exec sleep 3600" &) ' &) ; wait_for 1`,
	"deaf to signals":  `sh -c 'trap "" TERM INT HUP QUIT; echo $$; while :; do sleep 3600; done' & wait_for 1`,
	"stopped":          `sh -c 'echo $$; kill -STOP $$; exec sleep 3600' & wait_for 1`,
	"closes its files": `(setsid sh -c 'echo $$; exec sleep 3600 <&- >&- 2>&-' &) ; wait_for 1`,
	"a false name":     `setsid sh -c 'printf ") Z 1 1 1 (x" >/proc/$$/comm; echo $$; while :; do sleep 3600; done' & wait_for 1`,
	"keeps the output": `(setsid sh -c 'echo $$; exec sleep 3600' &) ; wait_for 1`,
}

// bare are ways that only a supervisor can prevent.
var bare = map[string]string{
	"without environment": `(env -i setsid /bin/sh -c '(/bin/sh -c "echo \$\$ ; exec /bin/sleep 3600" &)' &) ; wait_for 1`,
}

func leaving(script, file, after string) string {
	return `wait_for() { while [ "$(wc -l <"` + file + `")" -lt $1 ]; do sleep 0.01; done; }
: >"` + file + `"; { ` + script + "\n} >>" + file + "\n" + after
}

func TestNoProcessSurvives(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, supervised bool) {
		t.Helper()
		ways := maps.Clone(leave)
		if supervised {
			maps.Copy(ways, bare)
		}
		for name, script := range ways {
			for _, ending := range []string{"exit", "timeout"} {
				t.Run(name+"/"+ending, func(t *testing.T) {
					t.Parallel()
					file := filepath.Join(t.TempDir(), "pids")
					after := "exit 3"
					if ending == "timeout" {
						after = "trap '' TERM; sleep 3600"
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					stop := errors.New("out of time")
					if ending == "timeout" {
						go func() {
							pids(t, file, 1)
							cancel(stop)
						}()
					}
					began := time.Now()
					r, err := subprocess.Run(ctx, shell(leaving(script, file, after), supervised, mark(t)))
					switch {
					case ending == "exit" && (err != nil || r.Exit != 3):
						t.Errorf("Run = %+v, %v", r, err)
					case ending == "timeout" && !errors.Is(err, stop):
						t.Errorf("Run = %+v, %v, want the cause", r, err)
					case r.Left != 0:
						t.Errorf("%d processes are left", r.Left)
					}
					for _, pid := range pids(t, file, 1) {
						if alive(pid) {
							t.Errorf("process %d is alive", pid)
							_ = syscall.Kill(pid, syscall.SIGKILL)
						}
					}
					if took := time.Since(began); took > 30*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			}
		}
	})
}

// A process without environment and without parent survives if there is no supervisor. The package
// comment says so.
func TestSurvivorWithoutSupervisor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	if _, err := subprocess.Run(t.Context(), shell(leaving(bare["without environment"], file, ""), false, mark(t))); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids(t, file, 1) {
		if !alive(pid) {
			t.Errorf("process %d is dead: correct the package comment", pid)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestForkBomb checks that a program whose processes fork all the time dies as a whole.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, supervised bool) {
		t.Helper()
		for name, bomb := range map[string]string{
			// Each process replaces itself all the time. The number of processes stays bounded.
			"in one group":  `f() { sleep 0.02; f & }; for i in 1 2 3 4 5 6 7 8; do f & done`,
			"in many":       `for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'f() { sleep 0.02; f & }; f' & done`,
			"deep and wide": `f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 3600; }; f 6`,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				m := mark(t)
				r, err := subprocess.Run(ctx, shell(bomb+"; sleep 3600", supervised, m))
				if !errors.Is(err, context.DeadlineExceeded) || supervised && r.Left != 0 {
					t.Errorf("Run = %+v, %v", r, err)
				}
				if n := marked(m); n != 0 && (supervised || name != "in many") {
					t.Errorf("%d processes are alive", n)
				}
				for marked(m) > 0 && t.Context().Err() == nil { // without a supervisor, a process can fork during the scan
					_, _ = subprocess.KillMarked(m, time.Second)
				}
			})
		}
	})
}

// marked counts the living processes with a mark.
func marked(m string) (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		b, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && bytes.Contains(b, []byte(subprocess.MarkVar+"="+m)) && alive(pid) {
			n++
		}
	}
	return n
}

// TestKilledParent checks that the processes of a program die if the process that called Run is
// killed, and if its supervisor is killed too.
func TestKilledParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	for _, both := range []bool{false, true} {
		script := leaving(`echo $PPID; echo $$; `+leave["a double fork"], file, "sleep 3600")
		script = strings.ReplaceAll(script, "wait_for 1", "wait_for 3")
		parent := exec.CommandContext(t.Context(), executable(), "parent", script)
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		all := pids(t, file, 3)
		if both {
			// A stopped supervisor cannot notice the death of its parent.
			_ = syscall.Kill(all[0], syscall.SIGSTOP)
		}
		_ = parent.Process.Kill()
		_ = parent.Wait()
		if both {
			_ = syscall.Kill(all[0], syscall.SIGKILL)
			if !alive(all[1]) || !alive(all[2]) {
				t.Error("the processes died early, so this test shows nothing")
			}
			if left, err := subprocess.KillMarked("orphan-of-a-dead-parent", time.Minute); left != 0 || err != nil {
				t.Errorf("KillMarked = %d, %v", left, err)
			}
		}
		for _, pid := range all {
			for end := time.Now().Add(20 * time.Second); alive(pid) && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			if alive(pid) {
				t.Errorf("process %d of %v is alive", pid, all)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		_ = os.Remove(file)
	}
}

// TestHostileToSupervisor checks that a program that stops or kills its supervisor gains nothing.
func TestHostileToSupervisor(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"STOP", "KILL", "TERM"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			script := leaving(leave["its own session"], file, "kill -"+signal+" $PPID; sleep 1")
			r, err := subprocess.Run(ctx, shell(script, true, mark(t)))
			if (err == nil) != (signal != "STOP") || r.Left != 0 {
				t.Errorf("Run = %+v, %v", r, err)
			}
			if signal == "KILL" && r.Signal != "killed" {
				t.Errorf("Run = %+v, want the signal", r)
			}
			if signal == "TERM" && (r.Exit != 0 || r.Signal != "") {
				t.Errorf("Run = %+v: the signal ended the supervisor", r)
			}
			for _, pid := range pids(t, file, 1) {
				if alive(pid) {
					t.Errorf("process %d is alive", pid)
				}
			}
		})
	}
}

// TestForgedReport checks that a report that a program prints, or writes to the files of its
// supervisor, proves nothing: neither an exit code nor that no process is left.
func TestForgedReport(t *testing.T) {
	t.Parallel()
	const forge = `for f in 4 3; do { printf '{"exit":0}\n' >/proc/$PPID/fd/$f; } 2>/dev/null; done
	printf '{"exit":0}\n'; printf '{"exit":0}\n' >&2
`
	for name, tt := range map[string]struct {
		after, signal string
		exit          int
	}{
		"exit": {"exit 7", "", 7},
		"kill": {"kill -KILL $PPID; sleep 1", "killed", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			var out bytes.Buffer
			p := shell(leaving(leave["a double fork"], file, forge+tt.after), true, mark(t))
			p.Stdout = &out
			r, err := subprocess.Run(t.Context(), p)
			if err != nil || r.Exit != tt.exit || r.Signal != tt.signal || r.Left != 0 || !strings.Contains(out.String(), `{"exit":0}`) {
				t.Errorf("Run = %+v, %v, output %q", r, err, &out)
			}
			for _, pid := range pids(t, file, 1) {
				if alive(pid) {
					t.Errorf("process %d is alive", pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

// TestKillMarkedKillsOnlyMarked checks that KillMarked spares other programs.
func TestKillMarkedKillsOnlyMarked(t *testing.T) {
	t.Parallel()
	if left, err := subprocess.KillMarked("", time.Second); err == nil {
		t.Errorf("KillMarked of an empty mark = %d, nil, want an error", left)
	}
	other := exec.CommandContext(t.Context(), "sleep", "3600")
	other.Env = []string{subprocess.MarkVar + "=" + mark(t) + "b"}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	for _, m := range []string{mark(t) + "a", "x" + mark(t), mark(t) + "bb"} {
		if left, err := subprocess.KillMarked(m, time.Second); left != 0 || err != nil || !alive(other.Process.Pid) {
			t.Errorf("KillMarked(%q) = %d, %v; the other program is alive: %v", m, left, err, alive(other.Process.Pid))
		}
	}
}
