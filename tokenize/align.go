package tokenize

import (
	"math"
	"slices"
)

// A Drift selects how the Aligner handles a prompt that does not continue the open row.
type Drift uint8

// The ways to handle drift. Only DriftFork keeps every sampled token.
const (
	DriftFork    Drift = iota // start a new row with the whole prompt
	DriftRealign              // replace the end of the last output with the prompt's tokens; fork if this would replace more than RealignMax tokens
	DriftReject               // reject the sample
)

// AlignConfig configures how calls become rows. The zero value forks on drift and sets no limits.
type AlignConfig struct {
	Drift Drift

	// RealignMax is the maximum number of tokens that DriftRealign replaces at the end of an
	// output.
	RealignMax int

	// MaxRowTokens is the maximum number of tokens in a row; 0 means no limit. If a call would
	// exceed the limit, the row ends before the call and has FlagCut. The call is cut, and so is
	// every later call whose prompt continues a cut call. A cut call is not in any row, and its
	// output tokens are counted in Alignment.Cut. A later call whose prompt forks starts a new
	// row if that row fits.
	MaxRowTokens int

	// VocabSize is the size of the engine's vocabulary. If it is positive, every id must be
	// smaller than VocabSize, except ids in quarantined calls.
	VocabSize int

	// TokenizerSize is the number of ids that the tokenizer defines. It is ignored unless it is
	// positive. A padded vocabulary also contains the ids from TokenizerSize to VocabSize - 1. A
	// row that contains such an id has FlagPaddedID.
	TokenizerSize int

	// StopIDs are the ids at which the engine ends an output, in addition to Call.StopID. A row has
	// FlagAfterStop if a sampled token follows the first stop id in the output of a call.
	StopIDs []int32

	// If MaskAfterStop is true, the tokens after the first stop id in an output have mask 0 and
	// are counted in Alignment.Unscored.
	MaskAfterStop bool

	// Inside selects the values from inside the calls that rows keep.
	Inside Inside
}

// An Alignment counts the sampled tokens of a sample. Each sampled token is counted in exactly
// one of the terms on the right:
//
//	Sampled == Trained + Unscored + Trimmed + Cut + Lost
type Alignment struct {
	Sampled  int
	Trained  int // mask 1; each of these tokens is in exactly one row
	Unscored int // mask 0, because there is no usable log-probability, or because of MaskAfterStop; includes tokens in dropped rows
	Trimmed  int // replaced by DriftRealign
	Cut      int // in calls that were cut because of MaxRowTokens
	Lost     int // in quarantined calls

	// LostCalls lists the indexes of the quarantined calls. CutCalls lists the indexes of the cut
	// calls. Both slices are in ascending order, and are valid until the next use of the Aligner.
	LostCalls, CutCalls []int32

	// Forks counts the divergences that started a new row. Realigned counts the divergences that
	// were repaired. EmptyRows counts rows that were dropped because they had no trainable token.
	Forks, Realigned, EmptyRows int
}

// An Aligner turns the calls of a sample into rows. It reuses a small amount of memory from
// sample to sample. It is not safe for concurrent use, so each worker needs its own Aligner.
type Aligner struct {
	cfg         AlignConfig
	idLimit     uint32 // the greatest valid id
	lastNamedID uint32 // the greatest id that the tokenizer defines
	stopFrom    int32  // the smallest of cfg.StopIDs
	lost, cut   []int32

	// The remaining fields are the state of one call of Align.
	calls      []Call
	rows       []Row // if open is true, the last row is the open row
	sum        Alignment
	open       bool // there is an open row; it ends with the output of the previous call
	cutBefore  bool // the previous call was cut, so it is not in any row
	lostBefore bool // the previous call was quarantined
	lastRow    int  // index of the row that cut calls continue, or -1

	flagsBefore Flags // the flags of the open row before its last output
}

// NewAligner returns an Aligner with the given configuration.
func NewAligner(cfg AlignConfig) *Aligner {
	a := &Aligner{cfg: cfg, idLimit: lastID(cfg.VocabSize), lastNamedID: lastID(cfg.TokenizerSize), stopFrom: math.MaxInt32}
	for _, id := range cfg.StopIDs {
		a.stopFrom = min(a.stopFrom, id)
	}
	return a
}

// lastID returns the greatest id in a vocabulary of the given size. If size is 0 or less, there is
// no limit.
func lastID(size int) uint32 {
	if size <= 0 || size > math.MaxInt32 {
		return math.MaxInt32
	}
	return uint32(size) - 1
}

// Align returns the rows of one sample. The package documentation describes the rules. The rows
// share no memory with calls.
//
// A call with an unknown prompt must be quarantined. A quarantined call counts as lost, and rows
// do not continue after it. Calls with SourceLiteral can be mixed only with quarantined calls.
//
// If Align returns an *AlignError, no part of the sample must be used for training. The error
// wraps ErrLength, ErrNoPrompt, ErrVocab, ErrPrefix or ErrInvariant. ErrPrefix is possible only
// with DriftReject. ErrInvariant means that a call has a better grade than its source can prove.
func (a *Aligner) Align(calls []Call) ([]Row, Alignment, error) {
	if err := a.checkCalls(calls); err != nil {
		return nil, Alignment{}, err
	}
	a.calls, a.rows, a.sum = calls, nil, Alignment{}
	a.open, a.cutBefore, a.lostBefore, a.lastRow = false, false, false, -1
	a.lost, a.cut = a.lost[:0], a.cut[:0]
	defer func() { a.calls, a.rows = nil, nil }()
	for k := range calls {
		if err := a.call(k); err != nil {
			return nil, Alignment{}, err
		}
	}
	a.close()
	for i := range a.rows {
		a.rows[i].SegmentIndex, a.rows[i].SegmentCount = int32(i), int32(len(a.rows))
	}
	a.sum.LostCalls, a.sum.CutCalls = a.lost, a.cut
	return a.rows, a.sum, nil
}

func (a *Aligner) checkCalls(calls []Call) error {
	literal := -1
	for k := range calls {
		c := &calls[k]
		if c.Grade >= Quarantined {
			continue
		}
		if len(c.Logprobs) != len(c.OutputIDs) {
			return &AlignError{Turn: k, Token: min(len(c.Logprobs), len(c.OutputIDs)), Reason: ReasonLengthMismatch, Err: ErrLength}
		}
		if c.Versions != nil && len(c.Versions) != len(c.OutputIDs) {
			return &AlignError{Turn: k, Token: -1, Err: &detailError{ErrInvariant, "Versions and OutputIDs differ in length"}}
		}
		if err := a.checkInside(c); err != nil {
			return &AlignError{Turn: k, Token: -1, Reason: ReasonLengthMismatch, Err: &detailError{ErrInvariant, err.Error()}}
		}
		if !c.Source.proves(c.Grade) {
			return &AlignError{Turn: k, Token: -1, Err: &detailError{ErrInvariant, "prompt source " + c.Source.String() + " does not prove grade " + c.Grade.String()}}
		}
		isLiteral := 0
		if c.Source == SourceLiteral {
			isLiteral = 1
		}
		if isLiteral == 0 && len(c.PromptIDs) == 0 {
			return &AlignError{Turn: k, Token: -1, Reason: ReasonNoPrompt, Err: ErrNoPrompt}
		}
		if literal >= 0 && literal != isLiteral || isLiteral == 1 && c.PromptIDs != nil {
			return &AlignError{Turn: k, Token: -1, Reason: ReasonNoPrompt, Err: &detailError{ErrNoPrompt, "calls with literal prompts cannot be mixed with calls that have prompt ids"}}
		}
		literal = isLiteral
	}
	return nil
}

func (a *Aligner) call(k int) error {
	c := &a.calls[k]
	if k > 0 && c.Chain != a.calls[k-1].Chain {
		a.close()
		a.cutBefore, a.lostBefore, a.lastRow = false, false, -1
	}
	a.sum.Sampled += len(c.OutputIDs)
	if c.Grade >= Quarantined {
		a.close()
		a.sum.Lost += len(c.OutputIDs)
		a.lost = append(a.lost, int32(k))
		a.cutBefore, a.lostBefore = false, true
		return nil
	}
	switch {
	case !a.open && !a.cutBefore:
		return a.begin(k, nil)
	case c.Source == SourceLiteral:
		return a.extend(k, c.Context)
	}
	head, tail := a.history(k)
	n := commonPrefix(head, c.PromptIDs)
	if n == len(head) {
		n += commonPrefix(tail, c.PromptIDs[n:])
	}
	switch seen := len(head) + len(tail); {
	case n == seen && n < len(c.PromptIDs):
		return a.extend(k, c.PromptIDs[n:])
	case a.cfg.Drift == DriftReject:
		return &AlignError{Turn: k, Token: n, Reason: ReasonDrift, Err: ErrPrefix}
	case a.cfg.Drift == DriftRealign && a.canRealign(k, n):
		a.realign(k, n)
		a.sum.Realigned++
		return a.extend(k, c.PromptIDs[n:])
	default:
		div := a.newDivergence(k, n, head, tail)
		a.close()
		a.sum.Forks++
		return a.begin(k, div)
	}
}

// history returns all tokens that the model had received or sampled before call k. If the
// previous call was cut, they are its prompt and its output. Otherwise they are the open row, and
// tail is nil.
func (a *Aligner) history(k int) (head, tail []int32) {
	if a.cutBefore {
		return a.calls[k-1].PromptIDs, a.calls[k-1].OutputIDs
	}
	return a.rows[len(a.rows)-1].InputIDs, nil
}

// canRealign reports whether a divergence at token n can be repaired. The divergence must be
// inside the last output and at most RealignMax tokens before the end of the row. The repaired
// row must fit.
func (a *Aligner) canRealign(k, n int) bool {
	c, last := &a.calls[k], &a.calls[k-1]
	if a.cutBefore || n == len(c.PromptIDs) || !a.fits(len(c.PromptIDs)+len(c.OutputIDs)) {
		return false
	}
	end := len(a.rows[len(a.rows)-1].InputIDs)
	return n >= end-len(last.OutputIDs) && n < end && end-n <= a.cfg.RealignMax
}

// realign repairs the open row, which differs from the prompt of call k at token n.
func (a *Aligner) realign(k, n int) {
	row, last := &a.rows[len(a.rows)-1], &a.calls[k-1]
	begin := len(row.InputIDs) - len(last.OutputIDs)
	row.realign(k, n, a.calls[k].PromptIDs)
	kept := last.OutputIDs[:n-begin]
	row.Flags &^= (FlagAfterStop | FlagPaddedID) &^ (a.flagsBefore | last.Flags)
	if a.stop(last) < len(kept) {
		row.Flags |= FlagAfterStop
	}
	if a.padded(kept) {
		row.Flags |= FlagPaddedID
	}
}

// stop returns the position after the first stop id in the output of c. If the output has no stop
// id, stop returns the length of the output.
func (a *Aligner) stop(c *Call) int {
	from := a.stopFrom
	if c.StopID != nil {
		from = min(from, *c.StopID)
	}
	for i, id := range c.OutputIDs {
		if id >= from && (c.StopID != nil && id == *c.StopID || slices.Contains(a.cfg.StopIDs, id)) {
			return i + 1
		}
	}
	return len(c.OutputIDs)
}

// padded reports whether any of the ids is not defined by the tokenizer.
func (a *Aligner) padded(ids []int32) bool {
	if a.lastNamedID >= a.idLimit {
		return false
	}
	return firstAbove(ids, a.lastNamedID) >= 0
}

// extend appends the context and the output of call k to the open row. It cuts the call if the
// row would be too long or if the previous call was cut.
func (a *Aligner) extend(k int, context []int32) error {
	c := &a.calls[k]
	if a.cutBefore {
		a.skip(k)
		return nil
	}
	row := &a.rows[len(a.rows)-1]
	if !a.fits(len(row.InputIDs) + len(context) + len(c.OutputIDs)) {
		row.Flags |= FlagCut
		row.Truncated = true
		a.close()
		a.skip(k)
		return nil
	}
	role := c.After
	if role != RoleTool {
		role = RoleUser
	}
	return a.append(row, k, role, context)
}

// begin opens a row that starts with the whole prompt of call k. The argument div is the
// divergence that requires a new row, or nil if there was no divergence.
func (a *Aligner) begin(k int, div *Divergence) error {
	c := &a.calls[k]
	prompt := c.PromptIDs
	if c.Source == SourceLiteral {
		prompt = c.Context
	}
	if !a.fits(len(prompt) + len(c.OutputIDs)) {
		a.lastRow = -1
		a.skip(k)
		return nil
	}
	if a.lostBefore {
		div = &Divergence{Call: int32(k), Kind: DivergedAfterLost}
	}
	a.rows = append(a.rows, Row{
		Chain: c.Chain, ChainKind: c.ChainKind, Parent: c.Parent, FirstCall: int32(k), LastCall: int32(k), Grade: c.Grade, Source: c.Source, Divergence: div,
	})
	a.open, a.cutBefore, a.lostBefore, a.lastRow = true, false, false, -1
	row := &a.rows[len(a.rows)-1]
	row.reserve(a.finalLength(k, len(prompt)+len(c.OutputIDs)))
	return a.append(row, k, RolePrompt, prompt)
}

func (a *Aligner) append(row *Row, k int, role Role, context []int32) error {
	c := &a.calls[k]
	if i := a.firstInvalidID(context); i >= 0 {
		return &AlignError{Turn: k, Token: i, Reason: ReasonVocab, Err: ErrVocab}
	}
	if i := a.firstInvalidID(c.OutputIDs); i >= 0 {
		return &AlignError{Turn: k, Token: i, Reason: ReasonVocab, Err: ErrVocab}
	}
	row.AppendContext(role, context)
	if a.padded(context) {
		row.Flags |= FlagPaddedID
	}
	a.flagsBefore = row.Flags
	row.appendOutput(c)
	row.appendInside(c, len(row.InputIDs)-len(c.OutputIDs), a.cfg.Inside)
	if a.padded(c.OutputIDs) {
		row.Flags |= FlagPaddedID
	}
	if n := len(c.OutputIDs) - a.stop(c); n > 0 {
		row.Flags |= FlagAfterStop
		if a.cfg.MaskAfterStop {
			row.unscore(len(row.InputIDs) - n)
		}
	}
	row.LastCall = int32(k) + 1
	row.FinishReasons = append(row.FinishReasons, c.FinishReason)
	row.StepIDs = append(row.StepIDs, c.StepID)
	row.Flags |= c.Flags
	row.Flags &^= FlagLength // can be set because of an earlier output
	if row.Truncated = c.FinishReason == FinishLength; row.Truncated {
		row.Flags |= FlagLength
	}
	if c.Grade > row.Grade {
		row.Grade, row.Source = c.Grade, c.Source
	}
	return nil
}

func (a *Aligner) skip(k int) {
	a.open, a.cutBefore, a.lostBefore = false, true, false
	a.sum.Cut += len(a.calls[k].OutputIDs)
	a.cut = append(a.cut, int32(k))
}

// close closes the open row, if there is one, and drops the row if it has no trainable token.
func (a *Aligner) close() {
	if !a.open {
		return
	}
	a.open = false
	a.lastRow = len(a.rows) - 1
	row := &a.rows[a.lastRow]
	row.endInside()
	trained := 0
	for _, m := range row.LossMask {
		trained += int(m)
	}
	a.sum.Trained += trained
	a.sum.Unscored += int(row.Unscored)
	a.sum.Trimmed += int(row.Trimmed)
	if trained == 0 {
		a.sum.EmptyRows++
		a.rows = a.rows[:a.lastRow]
		a.lastRow = -1
	}
}

func (a *Aligner) fits(tokens int) bool {
	return a.cfg.MaxRowTokens <= 0 || tokens <= a.cfg.MaxRowTokens
}

func (a *Aligner) firstInvalidID(ids []int32) int { return firstAbove(ids, a.idLimit) }

// firstAbove returns the position of the first id that is negative or greater than the limit. It
// returns -1 if there is no such id.
func firstAbove(ids []int32, limit uint32) int {
	for i, id := range ids {
		if uint32(id) > limit {
			return i
		}
	}
	return -1
}

// finalLength estimates the final length of the row that starts with call k, so that the memory
// for the row is allocated only once.
func (a *Aligner) finalLength(k, tokens int) int {
	for k++; k < len(a.calls) && a.calls[k].Grade < Quarantined && a.calls[k].Chain == a.calls[k-1].Chain; k++ {
		c, last := &a.calls[k], &a.calls[k-1]
		if c.Source == SourceLiteral {
			tokens += len(c.Context) + len(c.OutputIDs)
			continue
		}
		n := len(last.PromptIDs)
		if len(c.PromptIDs) <= n+len(last.OutputIDs) || commonPrefix(c.PromptIDs[n:], last.OutputIDs) < len(last.OutputIDs) {
			break
		}
		tokens = len(c.PromptIDs) + len(c.OutputIDs)
	}
	if a.cfg.MaxRowTokens > 0 {
		tokens = min(tokens, a.cfg.MaxRowTokens)
	}
	return tokens
}

func commonPrefix[T int32 | byte](a, b []T) int {
	const block = 32
	n := min(len(a), len(b))
	i := 0
	for i+block <= n && [block]T(a[i:]) == [block]T(b[i:]) {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
