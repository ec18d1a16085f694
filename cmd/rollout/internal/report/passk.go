package report

// A group summarizes the scored samples of one task.
type group struct {
	size, samples, scored, passed int
	first                         float64 // reward of the first scored sample
	same                          bool    // true if all rewards so far are equal
}

func (g *group) reward(r, pass float64) {
	if g.scored == 0 {
		g.first, g.same = r, true
	}
	g.same = g.same && r == g.first
	g.scored++
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

func groupsOf(groups map[string]*group) Groups {
	var out Groups
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
