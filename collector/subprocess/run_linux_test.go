package subprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/subprocess"
)

// TestMain makes the test binary a supervisor, or a program that uses Run and is killed.
func TestMain(m *testing.M) {
	if code, ok := subprocess.Main(os.Args); ok {
		os.Exit(code) //nolint:forbidigo // this is the main of a supervisor
	}
	if len(os.Args) == 3 && os.Args[1] == "parent" {
		_, _ = subprocess.Run(context.Background(), shell(os.Args[2], true, "orphan-of-a-dead-parent"))
		return
	}
	m.Run()
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func shell(script string, supervised bool, mark string) subprocess.Program {
	p := subprocess.Program{
		Args: []string{"/bin/sh", "-c", script}, Dir: os.TempDir(), Mark: mark,
		Env: []string{"PATH=" + os.Getenv("PATH")},
	}
	if supervised {
		p.Supervisor = []string{executable()}
	}
	return p
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && (!ok || !strings.HasPrefix(rest, "Z"))
}

// pids reads the process numbers that a script has written, and waits until there are n.
func pids(t *testing.T, file string, n int) []int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(file)
		var all []int
		for text := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(text); err == nil {
				all = append(all, pid)
			}
		}
		if len(all) >= n && strings.HasSuffix(string(b), "\n") {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d processes started", len(all), n)
		}
	}
}

func eachWay(t *testing.T, test func(t *testing.T, supervised bool)) {
	t.Helper()
	for _, supervised := range []bool{true, false} {
		t.Run(fmt.Sprintf("supervised=%v", supervised), func(t *testing.T) {
			t.Parallel()
			test(t, supervised)
		})
	}
}

func mark(t *testing.T) string {
	t.Helper()
	m := strings.NewReplacer("/", "-", "=", "-", "#", "-").Replace(t.Name()) + strconv.Itoa(os.Getpid()) + "."
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = subprocess.KillMarked(m, 5*time.Second)
		}
	})
	return m
}

func TestRun(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, supervised bool) {
		t.Helper()
		for _, tt := range []struct {
			script, out, errs string
			exit              int
			signal            string
		}{
			{script: "echo hello; echo no >&2", out: "hello\n", errs: "no\n"},
			{script: "exit 7", exit: 7},
			{script: "kill -SEGV $$", exit: -1, signal: "segmentation fault"},
			{script: "kill -TERM 0; sleep 60", exit: -1, signal: "terminated"}, // the whole group
			{script: "read x; echo \"<$x>\"", out: "<>\n"},                     // stdin is empty
			{script: "echo $ROLLOUT_ATTEMPT $HOME", out: mark(t) + "\n"},
		} {
			var out, errs bytes.Buffer
			p := shell(tt.script, supervised, mark(t))
			p.Stdout, p.Stderr = &out, &errs
			r, err := subprocess.Run(t.Context(), p)
			if err != nil || r.Exit != tt.exit || r.Signal != tt.signal || r.Left != 0 {
				t.Errorf("%s: %+v, %v, want exit %d, signal %q", tt.script, r, err, tt.exit, tt.signal)
			}
			if out.String() != tt.out || errs.String() != tt.errs {
				t.Errorf("%s: output %q and %q, want %q and %q", tt.script, &out, &errs, tt.out, tt.errs)
			}
		}
	})
}

// TestStdin checks that a program reads a long input, and that a program that reads nothing ends.
func TestStdin(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, supervised bool) {
		t.Helper()
		for script, want := range map[string]string{"wc -c": "1048576\n", "true": "", "exec sleep 0.1": "", "setsid sleep 3600 & head -c 3": "xxx"} {
			var out bytes.Buffer
			p := shell(script, supervised, mark(t))
			p.Stdin, p.Stdout = strings.Repeat("x", 1<<20), &out
			if r, err := subprocess.Run(t.Context(), p); err != nil || r.Exit != 0 || strings.TrimLeft(out.String(), " ") != want {
				t.Errorf("%s: %+v, %v, output %q, want %q", script, r, err, &out, want)
			}
		}
	})
}

// TestFilesOfSupervisor checks that a program gets no file of its supervisor. With the report pipe,
// it could write a false report. A file that this process inherited could be a lock.
func TestFilesOfSupervisor(t *testing.T) {
	t.Parallel()
	inherited, err := syscall.Open("/dev/null", os.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	var out bytes.Buffer
	p := shell("ls /proc/$$/fd; true", true, mark(t))
	p.Stdout = &out
	if r, err := subprocess.Run(t.Context(), p); err != nil || out.String() != "0\n1\n2\n" {
		t.Errorf("Run = %+v, %v; the program has the files %q", r, err, &out)
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, supervised bool) {
		t.Helper()
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"/nonexistent/agent"}, "start /nonexistent/agent: "},
			{[]string{"/bin/echo", strings.Repeat("x", 1<<20)}, "the longest argument has 1048576 bytes"},
			{[]string{"/bin/echo", "a\x00b"}, "an argument contains a zero byte"},
		} {
			p := shell("", supervised, mark(t))
			p.Args = tt.args
			_, err := subprocess.Run(t.Context(), p)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.40q: %v, want %q", tt.args, err, tt.want)
			}
		}
	})
}
