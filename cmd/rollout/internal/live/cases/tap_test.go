//go:build linux

package cases_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// A tapped is a running `rollout tap` in front of the engine, with the handle of the model behind
// it.
type tapped struct {
	w                  *world
	url, spool, handle string
	reads              string    // source for collections: the spool or the tap's URL
	disk               string    // private file system of the spool; empty: none
	freed              time.Time // when it had room again
	args               []string
	cmd                *exec.Cmd
	said               bytes.Buffer
}

// newTap starts a tap, and creates a provider of this name for it.
func (w *world) newTap(t *testing.T, name string, args ...string) *tapped {
	t.Helper()
	spool := filepath.Join(t.TempDir(), "spool")
	p := &tapped{w: w, spool: spool, reads: spool, args: args}
	p.start(t)
	p.handle = w.l.Provider(t, name, p.url)
	return p
}

// start starts the tap; after a restart, on the same port. The tap ends with the test that started
// it first.
func (p *tapped) start(t *testing.T) {
	t.Helper()
	listen, ready := "127.0.0.1:0", filepath.Join(t.TempDir(), "ready")
	if p.url != "" {
		listen = strings.TrimPrefix(p.url, "http://")
	} else {
		t.Cleanup(func() {
			p.end(t, syscall.SIGKILL)
			if t.Failed() {
				t.Logf("the tap printed:\n%s", p.said.String())
			}
		})
	}
	args := append([]string{"tap", "--listen", listen, "--engine", p.w.engine.url, "--spool", p.spool, "--ready-file", ready}, p.args...)
	p.cmd = p.w.l.Command(context.WithoutCancel(t.Context()), p.w.program, args...) // it outlives a subtest
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.disk != "" {
		onDisk(p.cmd, p.disk)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	noError(t, p.cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; {
		if url, err := os.ReadFile(ready); err == nil && len(url) > 0 {
			p.url = strings.TrimSpace(string(url))
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the tap is not ready:\n%s", p.said.String())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *tapped) end(t *testing.T, by syscall.Signal) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	noError(t, p.cmd.Process.Signal(by))
	_ = p.cmd.Wait() // the exit code does not matter
	p.cmd = nil
}

func (p *tapped) through(c collection) collection {
	c.name += ", through the tap"
	c.tap = p
	return c
}

// tapCases are the collections through a tap. Traces are off, so nothing else proves the prompts of
// agents with several tools.
func (w *world) tapCases(t *testing.T, full bool) {
	t.Helper()
	p := w.newTap(t, "sglang-tap", "--set", "top_p=1.0", "--set", "max_new_tokens=8192")
	tasks := plain(p.handle)
	if !full {
		tasks = short(tasks)
	}
	// Its answer has a bare NaN, as Python prints it. The tap does not read it, because it is not
	// JSON.
	tasks = slices.DeleteFunc(tasks, func(k task) bool { return k.id == "nan" })
	for i := range tasks {
		tasks[i].want.reasons = nil // the tap also saw the calls after a compaction
	}
	t.Run("plain", func(t *testing.T) {
		stop := w.flip(t)
		defer stop()
		res := w.collect(t, p.through(collection{name: "what a model may say", tasks: tasks, samples: 1, code: exit.Tolerance, called: true, lost: 1}))
		for _, set := range []string{"top_p 1", "max_new_tokens 8192"} {
			if n := res.Told[set]; n != res.InRows.Calls {
				t.Errorf("%d of %d calls in rows of %s: %v", n, res.InRows.Calls, set, res.Told)
			}
		}
	})
	if !full {
		return
	}
	w.l.Pool(true)
	w.l.Restart(t, 0)
	for _, c := range w.ways(t, p.handle, full) {
		if !slices.Contains(c.args, "--prompts") {
			t.Run(c.name, func(t *testing.T) { w.collect(t, p.through(c)) })
		}
	}
	t.Run("collector killed and resumed", func(t *testing.T) { w.killed(t, p.through(faulted("collector killed and resumed", 5)), 2) })
	// The unreadable call can be any call of the seconds around it, so nothing that must be exact
	// follows.
	t.Run("not a number", func(t *testing.T) {
		c := p.through(collection{name: "a log-probability that is not a number", tasks: []task{play("nan", "nan").uses("add")}, samples: 2})
		c.weaker = true
		w.collect(t, c)
	})
	small := w.newTapOnDisk(t, "sglang-tap-disk")
	t.Run("disk full", small.fullDisk)
	// Calls can be lost with the tap. Agents with one tool are proven without it as well.
	broken := func(name string, hit func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			c := p.through(faulted(name, 5))
			c.weaker = true
			for i := range c.tasks {
				c.tasks[i] = c.tasks[i].uses("add")
			}
			w.hit(t, &c, func() { hit(t) })
		})
	}
	broken("tap killed and restarted", func(t *testing.T) {
		t.Helper()
		p.end(t, syscall.SIGKILL)
		p.start(t)
	})
	broken("spool damaged", p.damage)
	t.Run("disk free again", small.freedDisk)
}

func (p *tapped) damage(t *testing.T) {
	t.Helper()
	for _, name := range must(filepath.Glob(filepath.Join(p.spool, "*.tap")))(t) {
		f := must(os.OpenFile(name, os.O_RDWR, 0))(t)
		must(f.WriteAt([]byte("damage"), must(f.Stat())(t).Size()*3/4))(t)
		_ = f.Close()
	}
}

// continued collects through a tap with continuity. Each rollout stays one row.
func (w *world) continued(t *testing.T) {
	t.Helper()
	p := w.newTap(t, "sglang-continuity", "--continuity", "--tokenizer", w.l.Model)
	from := len(w.engine.calls())
	tasks := []task{
		play("sixteen", "sixteen").gives(1), play("think-tool", "think-tool").gives(1), play("text-tool", "text-tool").gives(1),
		play("compact", "compact").gives(1), play("numbers", "numbers"), play("chars", "chars").gives(1), play("split", "split").gives(1), play("unicode", "unicode"),
		play("dropped", "parallel"), play("multi", "think", "text-tool", "think"), play("random", "random seed=21 calls=6"), play("malformed", "malformed"),
	}
	res := w.collect(t, p.through(collection{name: "continuity", tasks: tasks, samples: 2}))
	if res.Flags["spliced"] == 0 {
		t.Errorf("flags of rows: %v, want spliced", res.Flags)
	}
	w.onlySampled(t, p, w.engine.calls()[from:])
}
