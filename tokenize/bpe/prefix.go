package bpe

// A prefixTable finds the longest token that is a prefix of a string. The node for a token has the
// token's id as its number; other nodes have higher numbers.
type prefixTable struct {
	edgeTable
	root   [256]int32
	tokens int32 // all token ids are lower than this
	nodes  int32
}

// maxNodes is the maximum number of nodes that edge.from can represent. Real vocabularies have
// fewer than a million nodes.
const maxNodes = 1 << 24

// newPrefixTable builds the table from the symbols and from the tokens that merging makes. The
// tokens in made must be in ascending order of size. newPrefixTable also finds the longest prefix
// of each token. The prefixes of a token are added before the token, so a node on the path to the
// token never becomes a token later.
func newPrefixTable(m *model, symbols, made []int32) (prefixTable, error) {
	p := prefixTable{edgeTable: newEdgeTable(), tokens: int32(len(m.tokenMerges)), nodes: int32(len(m.tokenMerges))}
	for b := range p.root {
		p.root[b] = -1
	}
	for _, id := range symbols {
		text := m.text(id)
		if len(text) == 1 {
			p.root[text[0]] = id
			continue
		}
		node := &p.root[text[0]]
		if *node < 0 {
			*node = p.nodes
			p.nodes++
		}
		if err := p.add(m.tokenMerges, *node, text[1:], id); err != nil {
			return p, err
		}
	}
	for _, id := range made {
		c := &m.tokenMerges[id]
		c.prefix = c.left
		if err := p.add(m.tokenMerges, c.left, m.text(c.right), id); err != nil {
			return p, err
		}
	}
	return p, nil
}

// add adds the path from a node to the token with the given id. The parameter text holds the bytes
// on that path.
func (p *prefixTable) add(tokenMerges []tokenMerge, node int32, text []byte, id int32) error {
	last := len(text) - 1
	for _, b := range text[:last] {
		next, ok := p.step(node, b)
		switch {
		case !ok && p.nodes == maxNodes:
			return unsupported("vocabulary with more than %d different token prefixes", maxNodes)
		case !ok:
			next = p.nodes
			p.nodes++
			p.put(node, b, next)
		case next < p.tokens:
			tokenMerges[id].prefix = next
		}
		node = next
	}
	p.put(node, text[last], id)
	return nil
}

// longest returns the longest token that is a prefix of s, or -1. The second result is the number
// of bytes of s that determine the token. It is len(s)+1 if text after s could change the token.
func (p *prefixTable) longest(s string) (tok int32, depends int) {
	node, best := p.root[s[0]], int32(-1)
	if node < 0 {
		return -1, 1
	}
	if node < p.tokens {
		best = node
	}
	i := 1
	for ; i < len(s); i++ {
		next, ok := p.step(node, s[i])
		if !ok {
			break
		}
		if next < p.tokens {
			best = next
		}
		node = next
	}
	return best, i + 1
}
