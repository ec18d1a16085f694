package collect

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/leftovers"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
)

// An Opened is a run whose folder, files and backends are open. Its collector has not yet started.
type Opened struct {
	plan      *Plan
	endpoints []collector.Endpoint
	answered  []string // names of the endpoints that answered a trial call
	dataset   dataset
	local     *sink.Dataset // the same dataset; nil for a worker of a fleet
	worker    *fleet.Worker // the same dataset; nil unless it is a worker of a fleet
	journal   *journal.Journal
	held      *sink.Ledger // what earlier processes stored in the dataset
	leftovers *leftovers.Agents
	recovery  show.Recovery
	attempts  map[string]string      // sample keys of the open attempts of earlier processes, by their marks; only for a harness
	stats     func() collector.Stats // for the worker of a fleet
	groups    *groups                // nil if the run does not commit whole groups
	damage    runfolder.Damage       // damage in files that earlier processes have committed
}

// A dataset is the sink of a run: a *sink.Dataset or a *fleet.Worker.
type dataset interface {
	collector.Sink
	Run(ctx context.Context) error
	Close(ctx context.Context) error
	Stats() sink.Stats
}

// Open makes a trial call to each server. It creates the run in its folder, or records the changes
// made by this invocation. It then opens the dataset and the journal, and recovers the data that
// earlier processes left in them. From then on, the run can be resumed after an interrupt.
func Open(ctx context.Context, p *Plan) (*Opened, error) {
	p.host.started()
	o := &Opened{plan: p, endpoints: p.endpoints()}
	if p.tasks.Tasks > 0 { // a stream without tasks tries the servers later, with the first task that arrives
		task, err := p.tasks.First()
		if err == nil {
			o.answered, err = p.tryServers(ctx, task)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := o.record(); err != nil {
		return nil, err
	}
	if err := o.open(); err != nil {
		return nil, err
	}
	return o, o.openHarness(ctx)
}

// record creates the run in its folder, or records the changes made by this invocation. It also
// opens the log.
func (o *Opened) record() (err error) {
	p, h := o.plan, o.plan.host
	if p.earlier != nil {
		err = p.folder.Update(p.info, p.tasks)
	} else {
		err = p.folder.Create(p.info, p.tasks)
	}
	if err == nil && p.settings.files != nil && p.options.Fleet == nil {
		err = p.folder.KeepTokenizer(p.settings.files)
	}
	if err != nil {
		return err
	}
	h.phase.Store("opening the folder")
	clearSocket(p.dir())
	log, err := show.OpenLog(p.dir(), p.info.LastLog(), p.folder.Mode, p.config.Secrets())
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	h.Log = log
	h.atClose(func() { _ = log.Close() }) // an error is harmless, because every line has been written
	return nil
}

// clearSocket removes the socket that a killed process has left in the folder. The caller holds the
// lock of the folder.
func clearSocket(dir string) {
	if info, err := os.Lstat(ctl.Path(dir)); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(ctl.Path(dir)) // a stale socket does no harm
	}
}

// open opens the dataset and the journal, and recovers the data that earlier processes left in
// them.
func (o *Opened) open() (err error) {
	p, h := o.plan, o.plan.host
	dir, cfg := p.dir(), p.settings.sink
	cfg.RunID, cfg.FS, cfg.Events = p.info.ID, sink.OSMode(p.folder.Mode), h.SinkEvents()
	cfg.Meta = map[string]string{
		"rollout.config_sha256":     p.info.ConfigSHA256,
		"rollout.server_version":    p.info.Servers[0].Version,
		runfolder.VersionsSourceKey: p.info.VersionsSource(),
	}
	if m := p.settings.model; m != nil {
		cfg.Meta["rollout.tokenizer_sha256"], cfg.Meta["rollout.chat_template_sha256"] = m.TokenizerSHA256, m.ChatTemplateSHA256
	}
	if p.options.Fleet != nil {
		return o.openWorker(cfg)
	}
	if p.byGroups() {
		o.groups = newGroups(p)
		o.groups.configure(&cfg)
	}
	if o.local, err = sink.Create(dir, cfg); err != nil {
		return runfolder.ReadError(dir, err)
	}
	o.dataset = o.local
	if o.held, err = o.local.Ledger(); err != nil {
		return runfolder.ReadError(dir, err)
	}
	return o.openJournal(o.local.Recovered(), o.held)
}

// openJournal opens the journal, and finds the work that earlier processes left in it. The dataset held
// contains their finished samples.
func (o *Opened) openJournal(recovered sink.Recovery, held journal.Dataset) (err error) {
	p, h, dir := o.plan, o.plan.host, o.plan.dir()
	if o.journal, err = journal.Open(filepath.Join(dir, runfolder.JournalDir), journal.Config{Mode: p.folder.Mode}); err != nil {
		return runfolder.ReadError(dir, err)
	}
	o.leftovers = &leftovers.Agents{RunID: p.info.ID, Clients: p.clients, Keep: p.config.Agent.Keep || p.options.Reads, Say: h.Say, Note: h.Note}
	o.recovery = h.Recovered(recovered, o.journal.Found(), o.leftovers.Find(o.journal, held))
	return nil
}

// damaged records a damaged file, and reports the first one at once.
func (o *Opened) damaged(err error) { o.plan.host.Damaged(err, o.damage.Add(err) == 1) }
