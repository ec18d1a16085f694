package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A Fleet is the fleet that a worker collects for. The output folder of the run is the worker's spool.
type Fleet struct {
	*fleet.Fleet
	Store    store.Store
	Location string // as the user gave it
	Abandon  func() // ends all operations on the store, also those that wait for it
	// Requests counts the requests to Store. Checks are those before the run.
	Requests *store.Requests
	Checks   map[string]int64
}

// CheckSpool returns an error unless the run in the folder of a spool is a worker of the fleet.
func (f *Fleet) CheckSpool(dir string, earlier *runfolder.Earlier) error {
	if earlier == nil {
		return nil
	}
	what := "contains a run"
	if of := earlier.Info.Fleet; of != nil {
		if of.ID == f.ID {
			return nil
		}
		what = "is the spool of the fleet " + of.ID + " in " + of.Location
	}
	return exit.With(exit.Folder, fmt.Errorf("%s %s", dir, what))
}

// absolute returns the location for run.json, because the next process can have another working folder.
func (f *Fleet) absolute() (string, error) {
	if store.IsURL(f.Location) {
		return f.Location, nil
	}
	return filepath.Abs(f.Location)
}

// check refuses settings that would change the rows.
func (f *Fleet) check(p *planning) error {
	if f == nil {
		return nil
	}
	info := runfolder.Info{Config: f.Config, Identity: f.Identity, Model: f.Model}
	bad := runfolder.Changes(p.loader, &info, p.identity, p.settings.model, true)
	// The rewards of two functions must not mix. The files of a command can differ, because an interpreter can.
	for _, s := range p.config.Reward.Scorers() {
		if file, _, _ := s.Kind.Python(); file != "" && f.Identity.ScorerFiles[file] != p.identity.ScorerFiles[file] {
			bad = append(bad, fmt.Errorf("reward.kind: %s has %s, but the fleet has %s", file, runfolder.ShortDigest(p.identity.ScorerFiles[file]), cmp.Or(runfolder.ShortDigest(f.Identity.ScorerFiles[file]), "no such file")))
		}
	}
	const key = "tasks.samples"
	if s := p.loader.ByKey[key]; string(f.Config["tasks"]["samples"]) != strconv.Itoa(p.config.Tasks.Samples) {
		bad = append(bad, fmt.Errorf("%s: the fleet has %s, but you set %d%s", key, f.Config["tasks"]["samples"], p.config.Tasks.Samples, s.Given()))
	}
	if bad != nil {
		return exit.Refuse(exit.Folder, bad, "remove these settings, or plan another fleet with them; all workers of a fleet write the same kind of rows")
	}
	return nil
}

// CheckFleet returns a complaint for each setting that a fleet does not support.
func CheckFleet(c *config.Config) (bad exit.Complaints) {
	complain := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format+": not supported in a fleet", args...))
		}
	}
	kind := c.Kind()
	complain(kind == config.KindAgents || kind == config.KindHarness, "%s", kind.Key)
	complain(c.Run.Tail.Kind == collector.TailWait, "run.tail %s", c.Run.Tail)
	complain(c.Tasks.UntilGroups == 0, "tasks.until_groups")
	complain(c.Tasks.Limit == 0, "tasks.limit")
	complain(c.Reward.MinStd == 0, "reward.min_std")
	complain(c.Run.MaxAhead == 0, "run.max_ahead")
	complain(c.Run.MaxLag < 0, "run.max_lag")
	if n := c.Output.ShardBytes; n > sink.MaxStoredShard && n != sink.DefaultMaxShardBytes {
		bad = append(bad, fmt.Errorf("output.shard_bytes: must be at most %s in a fleet", format.Size(sink.MaxStoredShard)))
	}
	return bad
}

// PlanFleet checks the settings and the tasks as NewPlan does, but asks no servers. It then writes a fleet
// of n partitions to a store. If n is 0, it uses the default number. If join is true and the store already
// contains a fleet with the same tasks and rows, PlanFleet returns that fleet, and joined is true.
func PlanFleet(ctx context.Context, h *Host, l *config.Loader, objects store.Store, n int, join bool) (f *fleet.Fleet, joined bool, err error) {
	temp, err := os.MkdirTemp("", "rollout-plan-")
	if err != nil {
		return nil, false, exit.With(exit.Storage, err)
	}
	h.atClose(func() { _ = os.RemoveAll(temp) }) // temporary files do no harm
	if l.Config.Tokens.PolicyVersion.Claimed {
		return nil, false, exit.Hint(exit.Usagef("tokens.policy_version: a plan cannot contain a number, because a number holds for one start of a worker"), "pass it to rollout work")
	}
	l.Config.Output.Dir = filepath.Join(temp, "tasks")
	p := &planning{Plan: &Plan{host: h, config: l.Config}, loader: l}
	for _, step := range []func(context.Context) error{p.readSettings, p.readTasks, p.tryFirstScore} {
		if err := step(ctx); err != nil {
			return nil, false, err
		}
	}
	info, err := runfolder.Describe(l, nil, p.identity, p.tasks, nil, p.settings.model)
	if err != nil {
		return nil, false, err
	}
	delete(info.Config["tasks"], "file") // paths of this machine
	delete(info.Config["output"], "dir")
	if info.Model != nil {
		info.Model.Files = "" // a fleet keeps no copy of the tokenizer
	}
	f = &fleet.Fleet{ID: info.ID, CreatedAt: info.CreatedAt, Program: version.Read().Version, Identity: p.identity, Model: info.Model, Config: info.Config}
	f.TasksSHA256 = info.Tasks.SHA256
	err = fleet.Plan(objects, f, cmp.Or(n, fleet.DefaultPartitions(p.tasks.Tasks)), p.planned(), temp)
	if join && errors.Is(err, fs.ErrExist) {
		f, err = p.join(objects, f.TasksSHA256, n)
		return f, true, err
	}
	if err == nil && p.unscored {
		h.Note("rewards will be null because the plan has no --reward")
	}
	return f, false, err
}

// join returns the fleet that a store contains, or an error if it differs from this plan.
func (p *planning) join(objects store.Store, tasks string, n int) (*fleet.Fleet, error) {
	f, err := fleet.Read(objects)
	if err == nil {
		err = (&Fleet{Fleet: f}).check(p)
	}
	if err != nil {
		return nil, err
	}
	var bad exit.Complaints
	if f.TasksSHA256 != tasks {
		bad = append(bad, errors.New("tasks.file: the fleet has other tasks"))
	}
	if had := len(f.Partitions); n != 0 && n != had {
		bad = append(bad, fmt.Errorf("--partitions: the fleet has %d, but you set %d", had, n))
	}
	if bad != nil {
		return nil, exit.Refuse(exit.Folder, bad, "pass what the fleet was planned with, or another prefix with --out")
	}
	return f, nil
}

// planned yields the tasks with their numbers of samples.
func (p *planning) planned() iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for t, err := range p.tasks.All() {
			if t.Samples == 0 {
				t.Samples = p.config.Tasks.Samples
			}
			if !yield(&t, err) {
				return
			}
		}
	}
}

// openWorker opens the worker of a fleet as the dataset of the run.
func (o *Opened) openWorker(cfg sink.Config) (err error) {
	p := o.plan
	f := p.options.Fleet
	cfg.MaxShardBytes = min(cfg.MaxShardBytes, sink.MaxStoredShard) // the default is larger
	o.worker, err = fleet.Open(fleet.Config{
		Store: f.Store, Fleet: f.Fleet, RunID: p.info.ID, Dir: p.dir(), Sink: cfg, Slots: o.slots,
		Logger: p.host.Log.Logger, Damaged: o.damaged, Waits: p.host.StoreBehind,
	})
	if err != nil {
		return runfolder.ReadError(f.Store.String(), err)
	}
	o.dataset = o.worker
	still := unclaimed{o.worker, map[string]bool{}}
	for t, err := range o.worker.Known() {
		if err != nil {
			return err
		}
		still.known[collector.GroupID(t)] = true
	}
	return o.openJournal(sink.Recovery{}, still)
}

// slots returns the number of samples that the servers can work on at present.
func (o *Opened) slots() (n int) {
	for _, e := range o.stats().Endpoints {
		if !e.Down && !e.Lost {
			n += e.Limit
		}
	}
	return n
}

// An unclaimed is the dataset that decides which attempts of earlier processes can be taken over. Samples
// of partitions that the spool no longer has count as done.
type unclaimed struct {
	*fleet.Worker
	known map[string]bool // groups of the partitions that the spool still has
}

// Find is like the method of journal.Dataset.
func (u unclaimed) Find(key string) (attempt int, class string, ok bool) {
	if group := key[:max(0, strings.LastIndexByte(key, '-'))]; !u.known[group] {
		return 0, "", true
	}
	return u.Worker.Find(key)
}

// addWorker makes the worker of a fleet the source of the tasks. It tries the scorer and the servers with
// the first task.
func (r *Running) addWorker(cfg *collector.Config) {
	w := r.opened.worker
	r.opened.stats = func() collector.Stats { return r.collector.Stats() }
	cfg.Admit, cfg.Left = w.Admit, r.opened.journal.Resume(w)
	cfg.More = func(ctx context.Context) iter.Seq2[*collector.Task, error] {
		return func(yield func(*collector.Task, error) bool) {
			tried := false
			for t, err := range w.Tasks(ctx) {
				if err == nil && !tried {
					tried, err = true, r.try(ctx, t)
				}
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}
