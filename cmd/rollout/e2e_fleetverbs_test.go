package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// A fleetLab has a bucket with a complete fleet under run1.
type fleetLab struct {
	*storetest.Server
	proxy               *storetest.Proxy
	sim                 *lettasim.Server
	url, list, endpoint string
}

func newFleetLab(t *testing.T) *fleetLab {
	t.Helper()
	l := &fleetLab{Server: &storetest.Server{}, sim: newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})}
	l.Create("bucket")
	l.proxy = &storetest.Proxy{Server: l.Server}
	l.endpoint = serve(t, &http.Server{Handler: l.proxy})
	l.url, l.list = serveSim(t, l.sim), writeFile(t, "tasks.jsonl", l.sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
	mustRun(t, exit.OK, l.args(t, "plan", l.at("run1"))...)
	mustRun(t, exit.OK, l.args(t, "work", l.at("run1"))...)
	return l
}

func (l *fleetLab) at(run string) string {
	return "s3://bucket/" + run + "?region=eu-north-1&endpoint_override=" + l.endpoint
}

// args returns the arguments of a verb for a location.
func (l *fleetLab) args(t *testing.T, verb, at string) []string {
	t.Helper()
	switch verb {
	case "plan":
		return []string{"plan", "--server", l.url, "--model", simModel, "--tasks", l.list, "--out", at, "--partitions", "2"}
	case "work":
		return []string{"work", at, "--spool", filepath.Join(t.TempDir(), "spool"), "--preflight", "connect"}
	}
	return []string{verb, at}
}

func (l *fleetLab) store(t *testing.T, run string) store.Store {
	t.Helper()
	return must(store.Open(t.Context(), l.at(run), store.Options{}))(t)
}

// plan orders a change of the server before the next request.
func (l *fleetLab) plan(fault func(*http.Request) storetest.Fault) { l.proxy.Plan(fault) }

// writers are the verbs of a fleet that write to its store.
var writers = []string{"plan", "work"}

// readers are the verbs of a fleet that only read.
var readers = []string{"status", "verify", "inspect", "report", "failures", "export"}

// Each mistake with a store has one clear line and one code, in all verbs.
func TestFleetVerbs(t *testing.T) {
	t.Parallel()
	l := newFleetLab(t)
	answer := func(status int, code string) func(*http.Request) storetest.Fault {
		return func(*http.Request) storetest.Fault { return storetest.Answer(status, code) }
	}
	deny := func(method string) func(*http.Request) storetest.Fault {
		return func(r *http.Request) storetest.Fault {
			if r.Method != method || r.URL.Query().Has("list-type") {
				return nil
			}
			return storetest.Answer(403, "AccessDenied")
		}
	}
	body := must(l.store(t, "run1").Get(fleet.Name))(t)
	put := func(run string, body []byte) string {
		noError(t, l.store(t, run).Put(fleet.Name, body))
		return l.at(run)
	}
	changed := func(change func(*fleet.Fleet)) []byte {
		var f fleet.Fleet
		noError(t, json.Unmarshal(body, &f))
		change(&f)
		return must(runfolder.EncodeSummed(&f))(t)
	}
	folder := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", l.url, "--model", simModel, "--tasks", l.list, "--out", folder)
	for i, err := range store.Folder(store.OS(), folder).List("", "") {
		noError(t, err)
		noError(t, l.store(t, "copy").Put(i.Name, must(os.ReadFile(filepath.Join(folder, filepath.FromSlash(i.Name))))(t)))
	}
	open := slices.Concat([]string{"clean"}, readers) // the verbs that open a run
	all := slices.Concat(writers, open)
	notPlan := all[1:]
	for _, c := range []struct {
		name, at string
		fault    func(*http.Request) storetest.Fault
		verbs    []string
		code     int
		text     string
	}{
		{"wrong bucket", strings.Replace(l.at("run1"), "bucket", "other", 1), nil, all, exit.Storage, "create it, or correct the name or the endpoint"},
		{"no list", l.at("run1"), answer(403, "AccessDenied"), all, exit.Storage, "allow s3:ListBucket"},
		{"no get", l.at("run1"), deny(http.MethodGet), all, exit.Storage, "allow s3:GetObject"},
		{"wrong key", l.at("run1"), answer(403, "InvalidAccessKeyId"), all, exit.Storage, "correct AWS_ACCESS_KEY_ID"},
		{"wrong clock", l.at("run1"), answer(403, "RequestTimeTooSkewed"), all, exit.Storage, "the clock of this machine is wrong (403 RequestTimeTooSkewed): synchronize it"},
		{"wrong region", l.at("run1"), answer(400, "AuthorizationHeaderMalformed"), all, exit.Usage, "add ?region=… to the URL"},
		{"one slash", "s3:/bucket/run1", nil, all, exit.Usage, "the URL does not begin with s3://"},
		{"no slash", "S3:bucket/run1", nil, all, exit.Usage, "use a folder or s3://bucket/prefix"},
		{"Google", "gs:/bucket/run1", nil, all, exit.Usage, "Google Cloud Storage is not supported"},
		{"Azure", "az://bucket/run1", nil, all, exit.Usage, "Azure is not supported"},
		{"HTTP", "https://host/bucket/run1", nil, all, exit.Usage, "use s3://bucket/prefix?endpoint_override=https://host:port"},
		{"credentials in the URL", "s3://AKIA:" + storetest.Secret + "@bucket/run1", nil, all, exit.Usage, "the URL contains credentials"},
		{"no put", l.at("run1"), deny(http.MethodPut), writers[1:], exit.Storage, "allow s3:PutObject"},
		{"no put", l.at("run2"), deny(http.MethodPut), writers[:1], exit.Storage, "allow s3:PutObject"},
		{"no put", l.at("run1"), deny(http.MethodPut), readers, exit.OK, ""},
		{"no delete", l.at("run1"), deny(http.MethodDelete), writers[1:], exit.Storage, "allow s3:DeleteObject"},
		{"empty prefix", l.at("empty"), nil, open, exit.Folder, "contains no run (it has neither fleet.json nor run.json)"},
		{"empty prefix", l.at("empty"), nil, writers[1:], exit.Folder, "contains no fleet (it has no fleet.json)"},
		{"second plan", l.at("run1"), nil, writers[:1], exit.Folder, "already contains a fleet"},
		{"plan over a run", l.at("copy"), nil, writers[:1], exit.Folder, "contains a run"},
		{"worker of a run", l.at("copy"), nil, writers[1:], exit.Folder, "contains the run of rollout collect, and not a fleet"},
		{"a run in a bucket", l.at("copy"), nil, open, exit.OK, ""},
		{"cut fleet.json", put("cut", body[:len(body)/2]), nil, notPlan, exit.Verify, "fleet.json is damaged"},
		{"empty fleet.json", put("null", nil), nil, notPlan, exit.Verify, "fleet.json is damaged"},
		{"later version", put("later", changed(func(f *fleet.Fleet) { f.Version, f.Program = 9, "9.9.9" })), nil, notPlan, exit.Folder, "supports only version 1\nhint: use the version of rollout that planned it: 9.9.9"},
		{"other rows", put("rows", changed(func(f *fleet.Fleet) { f.SchemaVersion++ })), nil, notPlan, exit.Folder, "use the version of rollout that planned it"},
	} {
		l.plan(c.fault)
		for _, verb := range c.verbs {
			r := invoke(t.Context(), l.args(t, verb, c.at)...)
			lines := strings.Count(r.stderr, "\n") - strings.Count(r.stderr, "\nhint: ")
			if r.code != c.code || !strings.Contains(r.stderr, c.text) || c.code != exit.OK && lines != 1 || strings.Contains(r.stderr, storetest.Secret) {
				t.Errorf("%s: %s ended with %d, want %d and %q:\n%s", c.name, verb, r.code, c.code, c.text, r.stderr)
			}
		}
	}
	for _, args := range [][]string{
		{"ctl", "s3:/bucket/run1", "status"},
		{"verify", l.at("run1"), "--repair"},
		{"import", l.list, "--out", "s3://bucket/run2"},
		{"collect", "--server", l.url, "--model", simModel, "--tasks", l.list, "--out", "s3://AKIA:" + storetest.Secret + "@bucket/run1"},
		{"work", l.at("run1"), "--spool", "s3:bucket"},
		{"clean", folder, "--older-than", "1h"},
		{"clean", l.at("run1"), "--older-than", "-1s"},
	} {
		l.plan(nil)
		r := mustRun(t, exit.Usage, args...)
		if !strings.Contains(r.stderr, "supported") && !strings.Contains(r.stderr, "must be") || strings.Contains(r.stderr, storetest.Secret) {
			t.Errorf("%q: %s", args, r.stderr)
		}
	}
}

// clean deletes what an interrupted plan, a replaced shard and a killed probe left, but only what is old by
// the clock of the store. This clock is a year behind the clock of this machine.
func TestFleetClean(t *testing.T) {
	t.Parallel()
	l := newFleetLab(t)
	ahead := func(d time.Duration) {
		l.Ahead = d - 365*24*time.Hour
		l.plan(nil)
	}
	ahead(0)
	noPlan := func(r *http.Request) storetest.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+fleet.Name) {
			return storetest.Answer(403, "AccessDenied")
		}
		return nil
	}
	l.plan(noPlan)
	contains(t, mustRun(t, exit.Storage, l.args(t, "plan", l.at("run2"))...).stderr, "allow s3:PutObject")
	l.plan(nil)
	contains(t, mustRun(t, exit.Folder, l.args(t, "work", l.at("run2"))...).stderr, "contains no fleet")
	mustRun(t, exit.OK, l.args(t, "plan", l.at("run2"))...)
	contains(t, mustRun(t, exit.Locked, l.args(t, "clean", l.at("run2"))...).stderr, "2 of 2 partitions are not complete")
	mustRun(t, exit.OK, l.args(t, "work", l.at("run2"))...)

	objects := l.store(t, "run2")
	f := must(fleet.Read(objects))(t)
	var garbage []string
	for _, name := range l.Keys("bucket") {
		if strings.HasPrefix(name, "run2/tasks/") && !strings.Contains(name, f.ID) {
			garbage = append(garbage, strings.TrimPrefix(name, "run2/"))
		}
	}
	if len(garbage) != 2 {
		t.Errorf("the first plan left %q", garbage)
	}
	lost, notes := fmt.Sprintf("partitions/0000/data/part-%s-1-9-00000000.parquet", f.ID), "partitions/0000/data/notes.txt"
	for _, name := range []string{lost, ".probe/x/1", notes} {
		noError(t, objects.Put(name, []byte("x")))
	}
	garbage = append(garbage, lost, ".probe/x/1")
	noError(t, objects.Put("workers/damaged.json", []byte("{}"))) // names no run
	body := `{"name":"other","agent_type":"letta_v1_agent","model":"` + simModel + `","tags":["rollout"],"metadata":{"rollout":{"run":"other","key":"other-0"}}}`
	answer := httptest.NewRecorder()
	l.sim.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agents/", strings.NewReader(body)))
	if left := agentsLeft(t, l.sim); !slices.Contains(left, "other-0") {
		t.Fatalf("the agent of another run: %s", answer.Body)
	}
	clean := func(want bool, flags ...string) {
		t.Helper()
		before := l.Keys("bucket")
		r := mustRun(t, exit.OK, append(l.args(t, "clean", l.at("run2")), flags...)...)
		for _, name := range garbage {
			if strings.Contains(r.stdout, "/"+name+"\n") != want {
				t.Errorf("clean %q: %s: %s", flags, name, r.stdout)
			}
		}
		gone := len(before) - len(l.Keys("bucket"))
		if wanted := want && len(flags) == 0; wanted && gone != len(garbage) || !wanted && gone != 0 {
			t.Errorf("clean %q deleted %d objects, want %d: %s", flags, gone, len(garbage), r.stdout)
		}
	}
	clean(false)
	ahead(23 * time.Hour)
	clean(false)
	clean(true, "--older-than", "1h", "--dry-run")
	ahead(25 * time.Hour)
	clean(true)
	garbage = nil
	clean(true)
	if left := agentsLeft(t, l.sim); !slices.Equal(left, []string{"other-0"}) {
		t.Errorf("the agents %q are left, want only one of another run", left)
	}
	contains(t, mustRun(t, exit.OK, "verify", l.at("run2")).stdout, ": ok: ")
	if got := must(objects.Get(notes))(t); !bytes.Equal(got, []byte("x")) {
		t.Errorf("the notes are %q", got)
	}
}
