package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// smallDisk runs a shell script with a private file system of the given size at $DISK, which ends
// with the script. The file system is a tmpfs in its own mount namespace. This needs root or user
// namespaces; without them the test is skipped.
func smallDisk(t *testing.T, size string, env []string, script string) (out string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a tmpfs in a mount namespace, which is Linux's")
	}
	disk := t.TempDir()
	command := func(script string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", `mount -t tmpfs -o size=`+size+` none "$DISK"; `+script)
		cmd.Env = append(append(os.Environ(), "DISK="+disk), env...)
		cmd.Dir = t.TempDir()
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
		return cmd
	}
	if b, err := command("true").CombinedOutput(); err != nil {
		t.Skipf("no small disk to fill: mounting a tmpfs is refused here (%v: %s); run as root, or allow user namespaces", err, bytes.TrimSpace(b))
	}
	b, err := command(script).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return string(b)
}

// If the disk fills up during a run, in both formats, the run ends at once with the reason. Its
// commits stay whole and no agent is left. When there is room again, the run resumes without loss.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"parquet", "arrow"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Script: lettasim.Script{Tokens: lettasim.Range{Min: 900, Max: 1000}}, Latency: latencyOf(t, "50ms")})
			out := smallDisk(t, "5m", []string{
				"URL=" + serveSim(t, sim),
				"TASKS=" + writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 100})),
				"CONFIG=" + writeFile(t, "run.yaml", []byte("server: {max_in_flight: 16, adaptive: false}\ntasks: {samples: 20}\noutput: {shard_bytes: 512KiB}\n")),
			}, `
				code=0
				rollout collect -c "$CONFIG" --server "$URL" --model `+simModel+` --tasks "$TASKS" --out "$DISK/run" --format `+format+` 2>err || code=$?
				echo "exit code $code"
				cat err
				rollout verify "$DISK/run"
				rollout inspect --json "$DISK/run" | wc -l
				head -c 6m /dev/zero >"$DISK/fill" 2>/dev/null || true
				code=0
				rollout collect --server "$URL" --model `+simModel+` --tasks "$TASKS" --out "$DISK/second" --quiet 2>err || code=$?
				echo "on a full disk: $code"
				cat err
				rm "$DISK/fill"
				mount -o remount,size=200m "$DISK"
				rollout collect -c "$CONFIG" --server "$URL" --model `+simModel+` --tasks "$TASKS" --out "$DISK/run" --format `+format+` --quiet --resume
				rollout verify "$DISK/run"
				rollout inspect --json "$DISK/run" | wc -l
			`)
			for _, want := range []string{
				`(?m)^exit code 6$`,
				// The disk is full for the next write: of the log, a shard or a commit entry.
				`(?m)^rollout: storage failed: \S+/(data|wal|_commits)/\S+: (write|sync|create|commit): .*no space left on device$`,
				`(?m)^  remaining +[1-9][0-9]*(   [1-9][0-9]* of them have finished and are in the write-ahead log)?$`,
				`(?m)^hint: free disk space, then continue with: rollout collect --resume --out \S+; finished samples are kept$`,
				`(?m)^\S+/run: ok: [1-9][0-9]* commits?, .*; [1-9][0-9,]* samples?, 0 of them failed; `,
				`(?m)^[1-9][0-9]+$`, // rows from inspect
				`(?m)^on a full disk: 6\nrollout: .*no space left on device$`,
				`(?m)^\S+/run: ok: [1-9][0-9]* commits?, .*; 2,000 samples, 0 of them failed; `,
			} {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("nothing matches %s", want)
				}
			}
			// A log that cannot grow right after a commit leaves nothing after it.
			said := regexp.MustCompile(`(?m)^  remaining .* ([0-9]+) of them have finished`).FindStringSubmatch(out)
			waits := regexp.MustCompile(`(?m)^rollout: samples in the write-ahead log but not yet in a shard: ([0-9]+)$`).FindStringSubmatch(out)
			if len(said) != len(waits) || len(said) == 2 && said[1] != waits[1] {
				t.Errorf("the run left %q in the write-ahead log, verify finds %q", said, waits)
			}
			if n := strings.Count(out, "no space left on device"); n != 2 {
				t.Errorf("a full disk is named %d times, want 2: once for each run", n)
			}
			if s := sim.Stats(); s.AgentsAlive != 0 || s.AgentsCreated == 0 {
				t.Errorf("%d of %d agents remain", s.AgentsAlive, s.AgentsCreated)
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// If the disk of a spool fills up while the bucket is full, the worker ends at once with the reason. When there
// is room again, the next process with the spool continues without loss.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: lettasim.Script{Tokens: lettasim.Range{Min: 900, Max: 1000}}, Latency: latencyOf(t, "50ms")})
	_, args := collectArgs(t, sim, serveSim(t, sim), 40, "--samples", "20", "--max-in-flight", "16",
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_bytes: 128KiB}\n")))
	b, room := newBucket(t), filepath.Join(t.TempDir(), "room")
	b.plan(t, 2, args...)
	b.proxy.Plan(func(r *http.Request) storetest.Fault {
		if _, err := os.Stat(room); err == nil || r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/data/") {
			return nil
		}
		return storetest.Answer(http.StatusForbidden, "QuotaExceeded")
	})
	out := smallDisk(t, "1m", []string{"AT=" + b.at, "ROOM=" + room}, `
		code=0
		rollout work "$AT" --spool "$DISK/spool" 2>err || code=$?
		echo "exit code $code"
		cat err
		rollout verify "$AT"
		touch "$ROOM"
		mount -o remount,size=200m "$DISK"
		rollout work "$AT" --spool "$DISK/spool" --quiet
		rollout verify "$AT"
	`)
	for _, want := range []string{
		`(?m)^exit code 6$`,
		`(?m)^rollout: storage failed: \S+/spool/\S+: (write|sync|create): .*no space left on device$`,
		`(?m)^hint: free disk space, then continue with: rollout work '\S+' --spool \S+; finished samples are kept$`,
		`(?m)^\S+/run1\S+: ok: .*; 0 samples, 0 of them failed; `,
		`(?m)^\S+/run1\S+: ok: .*; 800 samples, 0 of them failed; `,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing matches %s", want)
		}
	}
	if n := strings.Count(out, "no space left on device"); n != 1 {
		t.Errorf("a full disk is named %d times, want once", n)
	}
	if s := sim.Stats(); s.AgentsAlive != 0 || s.Answered > 800+16 {
		t.Errorf("%d agents remain; %d samples were collected for 800", s.AgentsAlive, s.Answered)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// Collecting into an unwritable folder fails cleanly: on a read-only file system, and in a folder
// of another user.
func TestFolderNotWritable(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	url := serveSim(t, sim)
	t.Run("read only", func(t *testing.T) {
		t.Parallel()
		out := smallDisk(t, "1m", []string{"URL=" + url, "TASKS=" + tasks}, `
			mkdir "$DISK/empty"
			mount -o remount,ro "$DISK"
			for dir in new empty; do
				code=0
				rollout collect --server "$URL" --model `+simModel+` --tasks "$TASKS" --out "$DISK/$dir" 2>&1 || code=$?
				echo "exit code $code"
			done
		`)
		if !regexp.MustCompile(`^rollout: \S+ \S+/new: read-only file system\n(hint: .*\n)?exit code 6\nrollout: open \S+/empty/lock: read-only file system\n(hint: .*\n)?exit code 6\n$`).MatchString(out) {
			t.Error(out)
		}
	})
	t.Run("permission", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		public, err := os.MkdirTemp("", "rollout-e2e-") //nolint:usetesting // the folder of the test is closed to others
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(public) })
		bin := must(exec.LookPath("rollout"))(t)
		program := must(os.ReadFile(bin))(t)
		for name, body := range map[string][]byte{"rollout": program, "tasks.jsonl": sim.Tasks(lettasim.TaskOptions{Scripted: 2})} {
			noError(t, os.WriteFile(filepath.Join(public, name), body, 0o755))
		}
		noError(t, errors.Join(os.Chmod(public, 0o755), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755)))
		cmd := exec.CommandContext(t.Context(), filepath.Join(public, "rollout"), "collect", "--server", url, "--model", simModel,
			"--tasks", filepath.Join(public, "tasks.jsonl"), "--out", filepath.Join(dir, "run"))
		cmd.Dir = public
		if os.Geteuid() == 0 { // root can write anywhere, so become another user
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Skipf("the program cannot be started as another user: %v", err)
		}
		if code := cmd.ProcessState.ExitCode(); code != exit.Storage || !regexp.MustCompile(`^rollout: mkdir \S+/run: permission denied\n(hint: .*\n)?$`).Match(out) {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
}

// While the disk of the spool is full, the tap reports it and counts no call as kept that cannot be
// read. Calls still pass. When there is room again, the tap recovers and writes the waiting calls.
func TestTapDiskFull(t *testing.T) {
	t.Parallel()
	_, engine := newEngine(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	order := func(name string) {
		if err := os.WriteFile(at(name), nil, 0o666); err != nil {
			t.Error(err)
		}
	}
	ended := make(chan string, 1) // read at the end
	go func() {
		defer close(ended) // also if the test is skipped there
		ended <- smallDisk(t, "2m", []string{"DIR=" + dir, "ENGINE=" + engine}, `
			awaits() { while [ ! -e "$DIR/$1" ]; do sleep 0.02; done; }
			rollout tap --listen 127.0.0.1:0 --engine "$ENGINE" --spool "$DISK/spool" --ready-file "$DIR/ready" 2>"$DIR/log" & tap=$!
			awaits fill; dd if=/dev/zero of="$DISK/full" bs=4k 2>/dev/null || true
			touch "$DIR/filled"; awaits free; rm "$DISK/full"
			awaits again; dd if=/dev/zero of="$DISK/full" bs=4k 2>/dev/null || true
			touch "$DIR/refilled"; awaits stop; kill -TERM $tap; wait $tap || true; cat "$DIR/log"`)
	}()
	url := ""
	waitFor(t, "the tap", func() bool {
		b, err := os.ReadFile(at("ready"))
		url = strings.TrimSpace(string(b))
		return err == nil || len(ended) > 0
	})
	health := func() string { return get(t, url+"/healthz") }
	random := randomOf(t)
	calls := func(n int) {
		for range n {
			var ids strings.Builder
			for range 20_000 { // more than the rest of the last block can hold
				fmt.Fprintf(&ids, "%d,", random.IntN(256))
			}
			contains(t, get(t, url+"/generate", `{"input_ids":[`+ids.String()+`10],"sampling_params":{"max_new_tokens":8},"return_logprob":true}`), "output_ids")
		}
	}
	kept := func(n int) bool {
		return strings.Contains(get(t, url+"/tap/metrics"), fmt.Sprintf("rollout_tap_calls_total{outcome=\"kept\"} %d\n", n))
	}
	calls(3)
	waitFor(t, "three calls in the spool", func() bool { return kept(3) })
	if text := health(); text != "ok\n" {
		t.Errorf("healthz returned %q", text)
	}
	order("fill")
	waitFor(t, "a full disk", func() bool { _, err := os.Stat(at("filled")); return err == nil })
	calls(5)
	waitFor(t, "a tap that is degraded", func() bool {
		text := health()
		return strings.HasPrefix(text, "degraded: the tap forwards calls outside sessions but cannot keep them (") && strings.Contains(text, "no space left on device")
	})
	if !kept(3) {
		t.Errorf("calls that cannot be read count as kept:\n%s", get(t, url+"/tap/metrics"))
	}
	order("free")
	waitFor(t, "a tap that is well", func() bool { return health() == "ok\n" && kept(8) })
	order("again")
	waitFor(t, "a full disk", func() bool { _, err := os.Stat(at("refilled")); return err == nil })
	calls(4)
	waitFor(t, "a tap that is degraded", func() bool { return strings.HasPrefix(health(), "degraded") })
	order("stop")
	if out := <-ended; !strings.Contains(out, "tapped: 12 calls, 8 kept") || !strings.Contains(out, "4 dropped") {
		t.Errorf("at the end the tap printed\n%s", out)
	}
}

// If the disk of a run's folder fills up while agents work, the run ends at once with the reason. No
// agent gets an answer that is not recorded. No process and no folder of an attempt is left. When
// there is room again, the run resumes, and has the same rows as without a full disk.
func TestHarnessDiskFull(t *testing.T) {
	t.Parallel()
	const tasks = 40
	var prompts []string
	for i := range tasks {
		prompts = append(prompts, fmt.Sprintf("Task %d. %s", i+1, enginesim.Marker(i+1, "long", "calls=2")))
	}
	h := newHarnessRun(t, prompts, 16, ", shard_bytes: 256KiB")
	out := smallDisk(t, "1m", []string{"TMPDIR=" + h.temp, "CONFIG=" + h.config, "DIR=" + h.dir}, `
		code=0
		rollout collect -c "$CONFIG" --out "$DISK/run" 2>err || code=$?
		echo "exit code $code"
		cat err
		rollout verify "$DISK/run"
		echo "folders: $(ls "$TMPDIR" | wc -l)"
		mount -o remount,size=200m "$DISK"
		rollout collect -c "$CONFIG" --out "$DISK/run" --quiet --resume
		rollout verify "$DISK/run"
		echo "sessions: $(find "$DISK/run/sessions" -name '*.session' | wc -l)"
		cp -r "$DISK/run" "$DIR"
	`)
	for _, want := range []string{
		`(?m)^exit code 6$`,
		`(?m)^rollout: .*storage failed: .*no space left on device$`,
		`(?m)^hint: free disk space, then continue with: rollout collect --resume --out \S+; finished samples are kept$`,
		`(?m)^folders: 0$`, `(?m)^sessions: 0$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing matches %s", want)
		}
	}
	if t.Failed() {
		t.Fatal(out)
	}
	got := verified(t, h.dir)
	if keys := got.once(t); len(keys) != tasks || len(got.rows) != tasks {
		t.Errorf("%d samples, %d have rows, want %d\n%s", len(keys), len(got.rows), tasks, out)
	}
	checkTrained(t, got, h.engine.Calls())
	h.nothingLeft(t)
}
