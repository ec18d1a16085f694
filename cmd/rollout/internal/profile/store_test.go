package profile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// A keeper is one way to keep the rows: rollout collect, or rollout work with a folder or a bucket.
type keeper struct {
	name       string
	partitions int  // 0: rollout collect
	bucket     bool // of versitygw, in its own process
}

var keepers = []keeper{
	{"collect", 0, false}, {"work-folder-64", 64, false}, {"work-bucket-64", 64, true},
}

// TestProfileStore implements make profilestore: the CPU time of a worker, on a bucket and on a
// local disk, compared with rollout collect. It needs ROLLOUT_NEW, the program, and ROLLOUT_STORES,
// a folder with versitygw.
func TestProfileStore(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	bin, stores := os.Getenv("ROLLOUT_NEW"), os.Getenv("ROLLOUT_STORES")
	if bin == "" || stores == "" {
		t.Skip("takes minutes: run make profilestore")
	}
	p := newProfiler(t, os.Getenv("ROLLOUT_PROFILE"))
	r := roads()[1] // a busy worker would pause at each claim, and then its CPU time per rollout is higher
	s := p.serve(t, bin, r)
	const copies = 20 // of each life
	samples := count(t, "ROLLOUT_PROFILE_SAMPLES", 16)
	few, many := copyTasks(t, s.tasks, 1), copyTasks(t, s.tasks, copies)
	location := serveBucket(t, filepath.Join(stores, "versitygw"))
	short, long := map[string][]time.Duration{}, map[string][]time.Duration{}
	n := copies * profileLives * samples
	for range count(t, "ROLLOUT_PROFILE_ROUNDS", 5) {
		for _, k := range keepers {
			short[k.name] = append(short[k.name], p.keep(t, bin, k, r, s, location, few, 1))
			long[k.name] = append(long[k.name], p.keep(t, bin, k, r, s, location, many, samples))
			each := (last(long[k.name]) - last(short[k.name])) / time.Duration(n-profileLives)
			t.Logf("%-15s %.0f ms for %d rollouts, %.0f ms for %d, %.3f ms CPU per rollout", k.name, ms(last(short[k.name])), profileLives, ms(last(long[k.name])), n, ms(each))
		}
	}
	base := median(long["collect"]) - median(short["collect"])
	for _, k := range keepers {
		each := median(long[k.name]) - median(short[k.name])
		t.Logf("%-15s median: %.3f ms CPU per rollout, %.2f times collect; %.0f ms to start, with %d rollouts; %.0f ms in all, %.2f times collect",
			k.name, ms(each)/float64(n-profileLives), float64(each)/float64(base), ms(median(short[k.name])), profileLives,
			ms(median(long[k.name])), float64(median(long[k.name]))/float64(median(long["collect"])))
	}
}

func last(d []time.Duration) time.Duration { return d[len(d)-1] }

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// keep collects samples of tasks and returns the CPU time of the collecting process. bucket is the
// location of a bucket, with %s for the prefix.
func (p *profiler) keep(t *testing.T, bin string, k keeper, r road, s *served, bucket, tasks string, samples int) time.Duration {
	t.Helper()
	dir := t.TempDir()
	settings := append([]string{"-c", p.config, "--server", s.url, "--model", "sglang//models/qwen3", "--tasks", tasks, "--samples", strconv.Itoa(samples)}, r.collect...)
	work := append([]string{"collect", "--quiet", "--out", filepath.Join(dir, "run")}, settings...)
	if k.partitions > 0 {
		run := filepath.Join(dir, "run")
		if k.bucket {
			run = fmt.Sprintf(bucket, filepath.Base(dir))
		}
		start(t, bin, append([]string{"plan", "--out", run, "--partitions", strconv.Itoa(k.partitions)}, settings...)...)
		work = []string{"work", run, "--quiet", "--spool", filepath.Join(dir, "spool")}
	}
	cpu := start(t, bin, work...)
	noError(t, os.RemoveAll(dir))
	return cpu
}

// start runs the program and returns its CPU time.
func start(t *testing.T, bin string, args ...string) time.Duration {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// copyTasks writes a task file with n tasks for each task of a file.
func copyTasks(t *testing.T, path string, n int) (copied string) {
	t.Helper()
	text, err := os.ReadFile(path)
	noError(t, err)
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		for i := range n {
			var task map[string]any
			noError(t, json.Unmarshal(line, &task))
			task["id"] = fmt.Sprintf("%v-%d", task["id"], i)
			noError(t, json.NewEncoder(&out).Encode(task))
		}
	}
	copied = filepath.Join(t.TempDir(), "tasks.jsonl")
	noError(t, os.WriteFile(copied, out.Bytes(), 0o666))
	return copied
}

// serveBucket starts versitygw. It returns the location of a bucket, with %s for the prefix.
func serveBucket(t *testing.T, server string) (location string) {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(server), "run-") //nolint:usetesting // versitygw needs extended attributes, and /tmp can lack them
	noError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	noError(t, os.Mkdir(filepath.Join(dir, "bucket"), 0o777))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	address := free.Addr().String()
	noError(t, free.Close())
	storetest.Setenv()
	cmd := exec.CommandContext(t.Context(), server, "--access", storetest.Key, "--secret", storetest.Secret, "--port", address, "posix", dir)
	noError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitFor(t, "versitygw", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
	return "s3://bucket/%s?endpoint_override=http://" + address
}
