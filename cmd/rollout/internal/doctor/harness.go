package doctor

import (
	"context"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/gateway"
	"github.com/rollout-rl/rollout/collector/harness"
)

// harness checks that the program of a harness exists, and that the engines return token ids. It does
// not run the program.
func (d *Doctor) harness(ctx context.Context) error {
	cfg, err := d.Config.HarnessConfig()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if d.Config.Harness.Render && d.model == nil {
		return nil // loadModel has reported why
	}
	g, err := gateway.New(ctx, d.Config, d.model)
	if err != nil {
		return err
	}
	defer g.Close()
	cfg.BaseURL, cfg.Sessions = g.URL(), g
	b, err := harness.NewBackend(cfg)
	for _, e := range harness.FieldErrors(err) {
		d.failed("harness", e)
	}
	if err == nil {
		d.ok("harness", "%s", d.Config.HarnessName())
	}
	engines, err := g.Probe(ctx)
	if err == nil && b != nil {
		err = b.Serve(engines[0].Model, gateway.Context(engines))
	}
	if err != nil {
		d.failed("engine", err)
	}
	for _, e := range engines {
		if e.Model == "" {
			continue // part of the error
		}
		d.ok("engine", "%s serves model %s and returns token ids", e.Engine, e.Model)
	}
	return nil
}
