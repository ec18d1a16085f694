package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// planFleet plans a fleet of scripted tasks. Its workers close a shard after 5 s.
func planFleet(t *testing.T, at string, sim *lettasim.Server, server string, tasks, samples, partitions int) {
	t.Helper()
	list, config := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), writeFile(t, "run.yaml", []byte("output: {shard_age: 5s}\n"))
	startProgram(t, "rollout", nil, "plan", "--server", server, "--model", simModel, "--tasks", list, "-c", config, "--out", at,
		"--samples", fmt.Sprint(samples), "--partitions", fmt.Sprint(partitions)).ends(t, time.Minute, exit.OK)
}

// Two workers collect a fleet in a bucket that loses requests and answers.
func TestFleetInBucket(t *testing.T) {
	t.Parallel()
	const n, samples = 20, 2
	server := &storetest.Server{}
	server.Create("bucket")
	proxy := &storetest.Proxy{Server: server}
	endpoint := serve(t, &http.Server{Handler: proxy})
	proxy.Plan(storetest.Random(1, 0.05, storetest.Answer(503, "SlowDown"), storetest.Drop, storetest.Lose, storetest.Truncate))
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "50ms..400ms")})
	url, dir := serveSim(t, sim), t.TempDir()
	at := "s3://bucket/run1?region=eu-north-1&endpoint_override=" + endpoint
	env := []string{"AWS_ACCESS_KEY_ID=" + storetest.Key, "AWS_SECRET_ACCESS_KEY=" + storetest.Secret}
	planFleet(t, at, sim, url, n, samples, 8)
	var workers []*process
	for i := range 2 {
		workers = append(workers, startProgram(t, "rollout", env, "work", at, "--spool", filepath.Join(dir, fmt.Sprint(i)), "--max-in-flight", "4", "--preflight", "connect"))
	}
	var said string
	for _, w := range workers {
		w.ends(t, 2*time.Minute, exit.OK)
		said += w.said()
	}
	contains(t, said, " per 1,000 samples: get ") // a slow start can leave nothing for one worker
	if strings.Contains(said, storetest.Secret) {
		t.Error("the output contains the secret")
	}
	read := func(code int, want string, args ...string) {
		t.Helper()
		p := startProgram(t, "rollout", env, args...)
		p.ends(t, time.Minute, code)
		contains(t, p.said(), want)
	}
	proxy.Plan(nil)
	read(exit.OK, fmt.Sprintf("%d planned: %d committed, 0 failed, 0 remaining", n*samples, n*samples), "status", at)
	read(exit.OK, " complete, 0 claimed, 0 not claimed", "status", at)
	read(exit.OK, at+": ok: ", "verify", at)
	read(exit.OK, fmt.Sprintf("the run has %d samples with data", n*samples), "inspect", at)
	read(exit.OK, "turn", "inspect", at, "--row", "30")
	read(exit.Usage, "--row: 30000 is out of range", "inspect", at, "--row", "30000")
	read(exit.OK, fmt.Sprintf("committed          %d  100 %%", n*samples), "report", at)
	read(exit.OK, "no failures", "failures", at)
	read(exit.OK, `"task_id"`, "export", at)
	read(exit.OK, `"samples":`+fmt.Sprint(n*samples), "export", at, "--kind", "all")
	read(exit.OK, " of run ", "clean", at, "--server", url)
	read(exit.Usage, "--repair: supported only for a run in a folder", "verify", at, "--repair")
	read(exit.Folder, "contains no run", "verify", strings.Replace(at, "run1", "run2", 1))
	if !testing.Short() { // it needs Python
		checkFleet(t, at, n*samples)
	}
}

// A worker that is interrupted while it waits for another worker ends as collect does when samples remain.
func TestFleetInterrupted(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "10m..11m")})
	url, dir := serveSim(t, sim), t.TempDir()
	at, list := filepath.Join(dir, "store"), writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 8}))
	mustRun(t, exit.OK, "plan", "--server", url, "--model", simModel, "--tasks", list, "--out", at, "--partitions", "1")
	work := func(name string) *process {
		return startProgram(t, "rollout", nil, "work", at, "--spool", filepath.Join(dir, name), "--max-in-flight", "4", "--preflight", "connect", "--json")
	}
	has := work("has")
	waitFor(t, "a claim", func() bool {
		return len(must(filepath.Glob(filepath.Join(at, "partitions", "0000", "_commits", "*")))(t)) > 0
	})
	waits := work("waits")
	waitFor(t, "a second worker", func() bool { return strings.Contains(waits.said(), `"launch"`) })
	noError(t, waits.cmd.Process.Signal(syscall.SIGTERM))
	waits.ends(t, time.Minute, exit.Interrupted)
	contains(t, waits.said(), "interrupted: 1 of 1 partitions are not complete")
	contains(t, waits.said(), "continue with: rollout work "+at+" --spool ")
	has.kill()
}

// Each mistake in a fleet has one clear line and the right code.
func TestFleetMistakes(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	url, dir := serveSim(t, sim), t.TempDir()
	at, list := filepath.Join(dir, "store"), writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
	plan := func(flags ...string) []string {
		return append([]string{"plan", "--server", url, "--model", simModel, "--tasks", list, "--out", at}, flags...)
	}
	work := func(flags ...string) []string {
		return append([]string{"work", at, "--spool", filepath.Join(dir, "spool"), "--preflight", "connect"}, flags...)
	}
	fails := func(code int, text string, args []string) {
		t.Helper()
		r := mustRun(t, code, args...)
		contains(t, r.stderr, text)
	}
	fails(exit.Folder, "contains no fleet", work())
	fails(exit.Usage, "--partitions -1: must be between 1 and 10000", plan("--partitions", "-1"))
	for flag, text := range map[string]string{
		"--limit=3": "tasks.limit: not supported in a fleet", "--min-std=0.1 --reward=number --samples=2": "reward.min_std: not supported in a fleet",
		"--max-ahead=3": "run.max_ahead: not supported in a fleet", "--max-lag=2": "run.max_lag: not supported in a fleet",
		"--policy-version=5": "tokens.policy_version: a plan cannot contain a number",
	} {
		fails(exit.Usage, text, plan(strings.Fields(flag)...))
	}
	fails(exit.Usage, "Azure is not supported", []string{"work", "az://bucket/run", "--spool", dir})
	contains(t, mustRun(t, exit.OK, plan()...).stderr, "rewards will be null")
	fails(exit.Folder, "already contains a fleet", plan())
	fails(exit.Folder, "tokens.max_row_tokens", work("--max-row-tokens", "100"))
	fails(exit.Usage, "--spool is not set", []string{"work", at})
	fails(exit.Usage, "--tasks: not supported by work", work("--tasks", list))
	fails(exit.Usage, "--retry-failed: not supported by work", work("--retry-failed"))
	fails(exit.Folder, "tasks.samples: the fleet has 1, but you set 3 (--samples)", work("--samples", "3"))

	spool := filepath.Join(dir, "spool")
	relative := must(filepath.Rel(must(os.Getwd())(t), at))(t)
	if r := mustRun(t, exit.OK, append([]string{"work", relative}, work()[2:]...)...); strings.Contains(r.stderr, "rewards will be null") {
		t.Errorf("a worker cannot change the plan's reward, and says:\n%s", r.stderr)
	}
	fails(exit.Folder, spool+" is the spool of a worker; the rows are in "+at, []string{"inspect", spool})
	mustRun(t, exit.OK, work()...) // nothing is left
	fails(exit.Folder, spool+" is the spool of a worker for "+at, []string{"collect", "--resume", "--out", spool})
	fails(exit.Folder, spool+" is the spool of a worker; the rows are in "+at, []string{"inspect", spool})
	fails(exit.Usage, "not supported by collect", []string{"collect", "--server", url, "--model", simModel, "--tasks", list, "--out", "s3://bucket/run"})
	run := filepath.Join(dir, "run")
	mustRun(t, exit.OK, "collect", "--server", url, "--model", simModel, "--tasks", list, "--out", run)
	fails(exit.Folder, run+" contains a run", []string{"work", at, "--spool", run})
	fails(exit.Folder, run+" contains a run", []string{"plan", "--server", url, "--model", simModel, "--tasks", list, "--out", run})
	fails(exit.Folder, "start each worker with its own --spool", []string{"work", at, "--spool", at})

	other := filepath.Join(dir, "other")
	mustRun(t, exit.OK, "plan", "--server", url, "--model", simModel, "--tasks", list, "--out", other)
	fails(exit.Folder, spool+" is the spool of the fleet ", []string{"work", other, "--spool", spool})
	private := filepath.Join(dir, "private")
	mustRun(t, exit.OK, "plan", "-c", writeFile(t, "run.yaml", []byte("server:\n  headers:\n    X-Own: value\n")), "--server", url, "--model", simModel, "--tasks", list, "--out", private)
	fails(exit.Usage, "fleet.json: server.headers: the run stores only references", []string{"work", private, "--spool", filepath.Join(dir, "private spool")})
	lock := must(runfolder.TakeLock(spool, 0o600))(t)
	defer func() { noError(t, lock.Close()) }()
	fails(exit.Locked, "start each worker with its own --spool", work())
	tasks := must(filepath.Glob(filepath.Join(other, "tasks", "*", "*.zst")))(t)
	for _, path := range tasks {
		noError(t, os.Remove(path))
		noError(t, os.WriteFile(path, []byte("changed"), 0o600))
	}
	fails(exit.Verify, "these are not the tasks that rollout plan wrote", []string{"work", other, "--spool", filepath.Join(dir, "spool2"), "--preflight", "connect"})
	plan0 := filepath.Join(other, "fleet.json")
	body := must(os.ReadFile(plan0))(t)
	noError(t, os.Remove(plan0))
	noError(t, os.WriteFile(plan0, append([]byte("x"), body...), 0o600))
	fails(exit.Verify, "its checksum is wrong", []string{"work", other, "--spool", filepath.Join(dir, "spool2")})
}

// A bucket that a worker cannot use is one clear line with the code of the storage.
func TestFleetBuckets(t *testing.T) {
	t.Parallel()
	server := &storetest.Server{}
	server.Create("bucket")
	proxy := &storetest.Proxy{Server: server}
	endpoint := serve(t, &http.Server{Handler: proxy})
	env := []string{"AWS_ACCESS_KEY_ID=" + storetest.Key, "AWS_SECRET_ACCESS_KEY=" + storetest.Secret}
	for _, c := range []struct {
		name, bucket, text string
		code               int
		fault              func(*http.Request) storetest.Fault
	}{
		{"wrong bucket", "other", "create it, or correct the name or the endpoint", exit.Storage, nil},
		{"no fleet", "bucket", "contains no fleet", exit.Folder, nil},
		{"no permission", "bucket", "allow s3:ListBucket", exit.Storage, func(*http.Request) storetest.Fault { return storetest.Answer(403, "AccessDenied") }},
		{"wrong clock", "bucket", "synchronize it", exit.Storage, func(*http.Request) storetest.Fault { return storetest.Answer(403, "RequestTimeTooSkewed") }},
		{"away", "bucket", "check " + endpoint, exit.Storage, func(*http.Request) storetest.Fault { return storetest.Drop }},
		{"overloaded at the start", "bucket", "contains no fleet", exit.Folder, storetest.First(5, http.MethodGet, storetest.Answer(503, "SlowDown"))},
	} {
		proxy.Plan(c.fault)
		at := "s3://" + c.bucket + "/run1?region=eu-north-1&endpoint_override=" + endpoint
		p := startProgram(t, "rollout", env, "work", at, "--spool", filepath.Join(t.TempDir(), "spool"))
		p.ends(t, time.Minute, c.code)
		if said := p.said(); !strings.Contains(said, c.text) || strings.Contains(said, storetest.Secret) || strings.Count(said, "rollout: ") > 2 {
			t.Errorf("%s: %s", c.name, said)
		}
	}

	proxy.Plan(nil)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	url, list := serveSim(t, sim), writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
	at := func(run string) string {
		return "s3://bucket/" + run + "?region=eu-north-1&endpoint_override=" + endpoint
	}
	plan := func(run string) *process {
		return startProgram(t, "rollout", env, "plan", "--server", url, "--model", simModel, "--tasks", list, "--out", at(run))
	}
	proxy.Plan(storetest.First(1<<30, http.MethodPut, storetest.Answer(507, "XMinioStorageFull")))
	full := plan("run1")
	full.ends(t, time.Minute, exit.Storage)
	contains(t, full.said(), "the store is full (507 XMinioStorageFull): free space in it, or raise the quota")
	proxy.Plan(storetest.First(5, http.MethodGet, storetest.Answer(503, "SlowDown")))
	plan("run1").ends(t, time.Minute, exit.OK)
	server.Unconditional = true
	proxy.Plan(nil) // orders the change before the next request
	for _, p := range []*process{plan("run2"), startProgram(t, "rollout", env, "work", at("run1"), "--spool", filepath.Join(t.TempDir(), "spool"))} {
		p.ends(t, time.Minute, exit.Storage)
		contains(t, p.said(), "use a store with conditional puts")
	}
}
