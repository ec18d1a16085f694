package main

import (
	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// painter returns whether to color stdout, for a value of --color.
func (p *program) painter(when string) (show.Painter, error) {
	switch when {
	case "always":
		p.stdout.Colours()
		return true, nil
	case "never":
		return false, nil
	case "auto":
		f, ok := termsafe.File(p.stdout)
		if !ok || !term.IsTerminal(int(f.Fd())) || p.getenv("NO_COLOR") != "" {
			return false, nil
		}
		p.stdout.Colours()
		return true, nil
	}
	return false, exit.Usagef("--color: %q is not one of auto, always, never", when)
}

func (p *program) width() int {
	if f, ok := termsafe.File(p.stdout); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return w
		}
	}
	return 100
}
