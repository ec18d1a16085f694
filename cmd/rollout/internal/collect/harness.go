package collect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/gateway"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize"
)

// harnessName is the name of the only endpoint of a run that drives a harness.
const harnessName = "harness"

// prepareHarness opens the gateway for the harness, and creates its backend. It does nothing for a
// run without a harness. It sends no request.
func (p *planning) prepareHarness(ctx context.Context) error {
	c := p.config
	if c.Kind() != config.KindHarness {
		return nil
	}
	cfg, err := c.HarnessConfig()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if p.gateway, err = gateway.New(ctx, c, p.settings.prompts.Model); err != nil {
		return err
	}
	p.host.atClose(p.gateway.Close)
	cfg.BaseURL, cfg.Sessions, cfg.Check, cfg.Supervisor = p.gateway.URL(), p.gateway, p.gateway.Check, supervisor
	p.harness, err = harness.NewBackend(cfg)
	var bad exit.Complaints
	for _, e := range harness.FieldErrors(err) {
		bad = append(bad, e)
	}
	return bad.Err()
}

// connectHarness adds the backend of the harness and the check of its engines.
func (p *planning) connectHarness() (err error) {
	c := p.config
	p.checks = []preflight.Server{{URL: strings.Join(c.Engine.URLs, " "), Ask: p.askEngines, Unusable: engineError}}
	p.versions, err = newVersions(c, p.options.Stream, p.host.VersionUnknown)
	p.backends = []collector.Backend{versioned{p.harness, p.versions}}
	return err
}

// supervisor is the command of the supervisor for package subprocess: this program, even if its file
// has been replaced since the start. Only Linux has a supervisor.
var supervisor = []string{"/proc/self/exe"}

// askEngines checks that every engine returns token ids, and that all of them serve the same model.
func (p *planning) askEngines(ctx context.Context) (runfolder.Server, error) {
	engines, err := p.gateway.Probe(ctx)
	if err != nil {
		return runfolder.Server{}, err
	}
	s := runfolder.Server{URL: p.checks[0].URL}
	for i, e := range engines {
		if s.Model != nil && s.Model.Name != e.Model {
			return s, fmt.Errorf("engine.urls: the engines serve different models: %s serves %s, and %s serves %s",
				engines[0].Engine, termsafe.Text(s.Model.Name, 80), engines[i].Engine, termsafe.Text(e.Model, 80))
		}
		s.Model = &runfolder.ServerModel{Handle: e.Model, Name: e.Model}
	}
	s.Model.ContextWindow = gateway.Context(engines)
	return s, p.harness.Serve(s.Model.Name, s.Model.ContextWindow)
}

// modelChange returns a complaint if the engines of a resumed run serve another model than before.
func modelChange(had, now []runfolder.Server) exit.Complaints {
	if len(had) == 0 || had[0].Model == nil || had[0].Model.Name == now[0].Model.Name {
		return nil
	}
	return exit.Complaints{fmt.Errorf("engine %s serves model %s, but the run has %s",
		now[0].URL, termsafe.Text(now[0].Model.Name, 80), termsafe.Text(had[0].Model.Name, 80))}
}

// engineError adds an exit code and a hint to an error from askEngines.
func engineError(err error) error {
	err = exit.With(exit.Unusable, err)
	if errors.Is(err, collector.ErrConnection) {
		return exit.Hint(err, "check that the inference engine (vLLM or SGLang) is running, and that the address is right")
	}
	return err
}

// openHarness starts to serve the sessions, and clears what dead processes of the run left. It does
// nothing for a run without a harness.
func (o *Opened) openHarness(ctx context.Context) error {
	p := o.plan
	if p.gateway == nil {
		return nil
	}
	if err := p.gateway.Start(filepath.Join(p.dir(), runfolder.SessionsDir), p.folder.Mode, p.host.Log.Logger); err != nil {
		return err
	}
	o.answered = append(o.answered, harnessName) // the engines have answered the calls of askEngines
	if !p.resumed() {
		return nil
	}
	o.attempts = map[string]string{}
	for key, a := range o.journal.OpenAttempts(o.held) {
		o.attempts[harness.Mark(p.info.ID, key, a.N)] = key
	}
	o.clearHarness(ctx)
	return nil
}

// clearHarness removes what ended processes left of attempts that will not be taken over: folders,
// the processes of commands, and sessions. It does nothing for a run without a harness. No attempt
// may be in flight.
func (o *Opened) clearHarness(ctx context.Context) {
	p := o.plan
	if p.gateway == nil {
		return
	}
	kept := map[string]bool{} // the sessions of attempts that can be taken over
	n, err := harness.Clean(ctx, "", p.info.ID, func(mark, id string) bool {
		if key, ok := o.attempts[mark]; ok && o.leftovers.Waiting(key) && p.gateway.Sealed(id) {
			kept[id] = true
			return true
		}
		return p.config.Agent.Keep
	})
	if n > 0 {
		p.host.Note("removed what was left of %s", format.Plural(int64(n), "attempt"))
	}
	if err = errors.Join(err, p.gateway.Clear(func(id string) bool { return kept[id] })); err != nil {
		p.host.Say("%v", err)
	}
}

// versioned adds the policy versions from the settings to the calls for which the engine stated no
// version.
type versioned struct {
	*harness.Backend
	source *policy.Source // nil: none
}

func (b versioned) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := b.Backend.Open(ctx, a)
	if err != nil || b.source == nil {
		return g, err
	}
	return &versionedAgent{Agent: g, source: b.source}, nil
}

type versionedAgent struct {
	collector.Agent
	source *policy.Source
	span   *policy.Span // covers the whole command
}

func (g *versionedAgent) Run(ctx context.Context) (*collector.Reply, error) {
	g.span = g.source.Begin(ctx)
	defer g.span.End()
	return g.Agent.Run(ctx)
}

func (g *versionedAgent) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	calls, err := g.Agent.Prompts(ctx, r)
	version, from := g.span.Version(ctx)
	wrong := false
	for i := range calls {
		if v := calls[i].Version; v != policy.Unknown {
			wrong = g.source.Traced(v, "", version) || wrong
		}
	}
	for i := range calls {
		if c := &calls[i]; !wrong && c.Version == policy.Unknown && c.Versions == nil {
			c.Version, c.VersionFrom = version, from
		}
	}
	return calls, err
}
