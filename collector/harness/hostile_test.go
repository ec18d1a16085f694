package harness_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
)

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && (!ok || !strings.HasPrefix(rest, "Z"))
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	pid, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return pid
}

// secretIn returns a secret in a text, as it is or as JSON, or "".
func secretIn(text string) string {
	for _, secret := range []string{"hunter2", otherSecret, referredSecret, "other-", "secret>", "cret,"} {
		if strings.Contains(text, secret) {
			return secret
		}
	}
	return session.KeyPattern.FindString(text)
}

// textOf returns all texts of a reply as they are stored.
func textOf(r *collector.Reply) string {
	text := r.Redact(r.Output) + "\n" + r.Redact(string(r.Messages))
	for _, s := range r.Sends {
		for _, turn := range s.Turns {
			text += "\n" + r.Redact(turn.Content)
		}
	}
	return text
}

// TestSecrets checks that neither the key nor a secret of the configuration nor the environment of
// this process gets into texts. The agent prints all of them, and the model repeats the first two. The
// scorer gets the answer and the messages unchanged.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, prompt := range []string{"calls=2 env=1", "calls=2 env=1 status=500 exit=1", "calls=1 env=1 write=out quiet=1", "calls=0 env=1", "calls=1 env=1 flood=3", "calls=1 env=1 json=1"} {
		cfg := r.config(t)
		keys := &keeper{Sessions: cfg.Sessions}
		cfg.Sessions = keys
		if strings.Contains(prompt, "write") {
			cfg.Output = output(t, "file:out")
		}
		if strings.Contains(prompt, "json") {
			cfg.Output = output(t, "json:.result.texts[1]")
		}
		run(t, cfg, prompt, func(r *collector.Reply, err error) {
			text := fmt.Sprint(err, textOf(r))
			if secret := secretIn(text); secret != "" || strings.Contains(text, string(keys.key)) {
				t.Errorf("%s: the texts contain the secret %q: %s", prompt, secret, text)
			}
			if len(r.Sends) > 0 && !strings.Contains(r.Redact(string(r.Messages)), "the key is (session key),(secret),(secret)") {
				t.Errorf("%s: messages %s", prompt, r.Messages)
			}
			if answer := "the key is " + string(keys.key) + "," + otherSecret + "," + referredSecret; err == nil && (!strings.HasSuffix(r.Output, answer) || !strings.Contains(string(r.Messages), ","+referredSecret)) {
				t.Errorf("%s: the scorer gets %.1000s and %s, want %s", prompt, r.Output, r.Messages, answer)
			}
			if strings.Contains(prompt, "calls=2 env=1") && !strings.Contains(text+keys.last, "(session key)") {
				t.Errorf("%s: the test shows nothing, because the agent printed nothing: %s", prompt, text)
			}
		})
		if secret := secretIn(keys.last); secret != "" || strings.Contains(keys.last, string(keys.key)) {
			t.Errorf("%s: the end of the session contains the secret %q: %s", prompt, secret, keys.last)
		}
	}
}

// TestFlood checks that the size of the kept output is bounded, and that its end is kept.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run(t, r.config(t), "calls=1 flood=200", func(r *collector.Reply, err error) {
		if err != nil || len(r.Output) > 1<<20 || len(r.Output) < 1<<19 || !strings.HasSuffix(r.Output, "\nanswer 1") {
			t.Errorf("%d bytes, %v", len(r.Output), err)
		}
	})
}

// TestSurvivor checks that no process of an agent outlives Run, and that a flood of such processes
// does not delay it.
func TestSurvivor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, supervised := range []bool{true, false} {
		cfg := r.config(t)
		if !supervised {
			cfg.Supervisor = nil
		}
		file := filepath.Join(t.TempDir(), "pid")
		began := time.Now()
		run(t, cfg, "calls=1 child="+file, func(_ *collector.Reply, err error) {
			if err != nil {
				t.Error(err)
			}
			if pid := pidIn(t, file); alive(pid) {
				t.Errorf("supervised %v: process %d is alive", supervised, pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// TestSpoiledFolder checks that folders that cannot be listed are removed. As root, permissions mean
// nothing.
func TestSpoiledFolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run(t, r.config(t), "calls=1 spoil=1", func(_ *collector.Reply, err error) {
		if err != nil {
			t.Error(err)
		}
	})
}

// TestIsolation checks the folder and the environment of a command.
func TestIsolation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fixture := t.TempDir()
	for path, mode := range map[string]os.FileMode{"bin/run": 0o755, "data/a": 0o644} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(fixture, path)), 0o755)
		if err := os.WriteFile(filepath.Join(fixture, path), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../data/a", filepath.Join(fixture, "bin/a")); err != nil {
		t.Fatal(err)
	}
	cfg := r.config(t)
	cfg.Workdir, cfg.Context = fixture, 8192
	cfg.Env["TASK"], cfg.Env["NOTHING"] = "{prompt}|{model}|{workdir}|{home}|{context}|{max_output}|{unknown}|${HOME}", ""
	cfg.Files = map[string]string{".agent/config.json": `{"url":"{base_url}/v1","model":"{model}"}`}
	cfg.Command = []string{"sh", "-c", `
		env | sort | grep -v -e ^OPENAI -e ^OTHER -e ^REFERRED -e ^SHLVL -e ^_= -e ^OLDPWD
		cat $HOME/.agent/config.json; echo; echo "arg:$1"
		./bin/run && cat bin/a && echo changed >data/a && touch $HOME/h $TMPDIR/t && rm -r bin
		exec "$0" agent calls=1`, executable(), "{prompt}"}
	// The prompt contains a placeholder. It stays as it is.
	run(t, cfg, "calls=1 {key}", func(reply *collector.Reply, err error) {
		if err == nil || collector.Classify(err) != collector.ClassForeign {
			t.Errorf("error %v, want foreign, because the agent got another prompt", err)
		}
		for _, want := range []string{
			"TASK=calls=1 {key}|policy|" + reply.Workdir + "|" + filepath.Dir(reply.Workdir) + "/home|8192|2048|{unknown}|${HOME}\n",
			"HOME=" + filepath.Dir(reply.Workdir) + "/home\n", "TMPDIR=" + filepath.Dir(reply.Workdir) + "/tmp\n", "TERM=dumb\n", "NOTHING=\n",
			`{"url":"` + r.url + `/r/(session key)/v1","model":"policy"}`, "#!/bin/sh\n", "\nanswer 1", "\narg:calls=1 {key}\n",
		} {
			if !strings.Contains(reply.Redact(reply.Output), want) {
				t.Errorf("the output lacks %q:\n%s", want, reply.Output)
			}
		}
		for line := range strings.Lines(reply.Output) {
			name, _, ok := strings.Cut(line, "=")
			if ok && strings.ToUpper(name) == name && !strings.Contains(" HOME PWD TMPDIR TERM NO_COLOR LANG PATH LC_ALL LC_CTYPE TZ USER LOGNAME SHELL TASK NOTHING ROLLOUT_ATTEMPT ", " "+name+" ") {
				t.Errorf("the command inherits %s", line)
			}
		}
		if b, err := os.ReadFile(filepath.Join(reply.Workdir, "data/a")); err != nil || string(b) != "changed\n" {
			t.Errorf("the scorer would read %q, %v", b, err)
		}
		if info, err := os.Stat(filepath.Dir(reply.Workdir)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder of the attempt: %v, %v", info.Mode(), err)
		}
	})
	if b, err := os.ReadFile(filepath.Join(fixture, "data/a")); err != nil || string(b) != "#!/bin/sh\n" {
		t.Errorf("the agent changed the original: %q, %v", b, err)
	}
}

// TestLongPrompt checks that a prompt that is too long for an argument is passed by the standard
// input.
func TestLongPrompt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config(t)
	cfg.Command, cfg.Stdin = []string{"sh", "-c", `exec "$0" agent "$(head -c 7)"`, executable()}, "{prompt}"
	run(t, cfg, "calls=1"+strings.Repeat(" long", 100<<10), func(r *collector.Reply, err error) {
		if collector.Classify(err) != collector.ClassForeign || r.Output != "answer 1" {
			t.Errorf("%v, output %q", err, r.Output) // foreign, because the agent passes a part only
		}
	})
}

// TestFullDisk checks that an attempt whose folder cannot be made is retried later, and leaves
// nothing.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config(t)
	cfg.Dir = filepath.Join(cfg.Dir, "missing")
	b := backend(t, cfg)
	if _, err := b.Open(t.Context(), attempt("calls=1", 1)); collector.Classify(err) != collector.ClassUnavailable {
		t.Errorf("Open = %v, want unavailable", err)
	}
	cfg = r.config(t)
	cfg.Sessions = broken{cfg.Sessions}
	b = backend(t, cfg)
	if _, err := b.Open(t.Context(), attempt("calls=1", 1)); collector.Classify(err) != collector.ClassStorage {
		t.Errorf("Open = %v, want storage", err)
	}
	empty(t, cfg.Dir)
	if st := r.store.Stats(); st.Open != 0 {
		t.Errorf("%d sessions are left", st.Open)
	}
}
