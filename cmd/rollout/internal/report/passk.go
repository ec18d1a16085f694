package report

import (
	"cmp"
	"slices"
)

// A group summarizes the scored samples of one task.
type group struct {
	task                          string
	size, samples, scored, passed int
	first, sum                    float64 // reward of the first scored sample, sum of all rewards
	sampled                       int64   // sampled tokens of all samples
	same                          bool    // true if all rewards so far are equal
}

func (g *group) reward(r, pass float64) {
	if g.scored == 0 {
		g.first, g.same = r, true
	}
	g.same = g.same && r == g.first
	g.scored++
	g.sum += r
	if r >= pass {
		g.passed++
	}
}

// passAtK returns an unbiased estimate of the probability that at least one of k samples passes if
// c of n samples passed. The estimate is 1 - C(n-c, k)/C(n, k). Computing it as a product keeps the
// result between 0 and 1.
func passAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

// passes estimates pass@k for k = 1, 2, 4, … as long as some group has k scored samples.
func passes(groups map[string]*group) []PassAtK {
	most := 0
	for _, g := range groups {
		most = max(most, g.scored)
	}
	var out []PassAtK
	for k := 1; k <= most; k *= 2 {
		p := PassAtK{K: k}
		for _, g := range groups {
			if g.scored >= k {
				p.Value += passAtK(g.scored, g.passed, k)
				p.Groups++
			}
		}
		p.Value /= float64(p.Groups)
		out = append(out, p)
	}
	return out
}

// maxHardest is the number of tasks in Groups.Hardest.
const maxHardest = 100

// hardest returns the tasks with the lowest mean rewards, the lowest first. If two means are
// equal, the task with more sampled tokens per sample is harder.
func hardest(groups map[string]*group) (out []TaskRewards) {
	for _, g := range groups {
		if g.scored > 0 {
			out = append(out, TaskRewards{
				Task: g.task, Samples: g.samples, Scored: g.scored, Passed: g.passed, RewardSum: g.sum,
				Sampled: g.sampled, Equal: g.same,
			})
		}
	}
	slices.SortFunc(out, func(a, b TaskRewards) int {
		return cmp.Or(
			cmp.Compare(a.RewardSum/float64(a.Scored), b.RewardSum/float64(b.Scored)),
			cmp.Compare(float64(b.Sampled)/float64(b.Samples), float64(a.Sampled)/float64(a.Samples)), cmp.Compare(a.Task, b.Task))
	})
	return slices.Clip(out[:min(len(out), maxHardest)])
}

func groupsOf(groups map[string]*group) Groups {
	out := Groups{Hardest: hardest(groups)}
	for _, g := range groups {
		out.Groups++
		if g.samples >= g.size {
			out.Whole++
		}
		if g.scored < 2 {
			continue
		}
		out.Scored++
		if !g.same {
			continue
		}
		out.ZeroVariance++
		switch g.passed {
		case g.scored:
			out.AllPass++
		case 0:
			out.NonePass++
		}
	}
	return out
}
