package show

import (
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// openGroups holds the groups with some but not all samples ended in this process. There are few,
// because the collector finishes open groups first.
type openGroups struct {
	mu     sync.Mutex
	groups map[string]*openGroup
}

type openGroup struct {
	left, scored, lost int
	reward             float64
	differ             bool
}

// add counts a sample that has ended. ended reports whether it is the last sample of its group.
func (o *openGroups) add(s *tokenize.Sample, kept bool) (g *openGroup, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g = o.groups[s.GroupID]
	if g == nil {
		g = &openGroup{left: int(s.GroupSize)}
		o.groups[s.GroupID] = g
	}
	g.left--
	if !kept {
		g.lost++
	}
	if s.Reward != nil && kept {
		g.differ = g.differ || g.scored > 0 && *s.Reward != g.reward
		g.reward = *s.Reward
		g.scored++
	}
	if g.left > 0 {
		return g, false
	}
	delete(o.groups, s.GroupID)
	return g, true
}

func (g *openGroup) outcome() string {
	if g.lost > 0 {
		return groupPartial
	}
	return groupComplete
}

func (g *openGroup) reason() string {
	if g.scored > 1 && !g.differ {
		return reasonZeroVariance
	}
	return reasonOther
}
