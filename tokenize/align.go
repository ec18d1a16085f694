package tokenize

// A Drift says what to do with a prompt that does not continue the open row.
type Drift uint8

// The ways of DESIGN: fork is the default and the only one that trims nothing.
const (
	DriftFork    Drift = iota // begin a new row with the true prompt
	DriftRealign              // mask and replace a short end of the last output, else fork
	DriftReject               // refuse the sample
)

// AlignConfig says how calls become rows. The zero value forks, and bounds nothing.
type AlignConfig struct {
	Drift Drift
	// RealignMax is, for DriftRealign, the greatest number of sampled tokens at the
	// end of the last output that may be replaced.
	RealignMax int
	// MaxRowTokens bounds T. A row is cut before the call that would exceed it, so
	// always at a turn's end. 0 means no bound.
	MaxRowTokens int
	// VocabSize, where positive, bounds every id.
	VocabSize int
}

// An Alignment adds up what Align did with the sampled tokens of a sample:
//
//	Sampled == Trained + Unscored + Trimmed + Cut + Lost
type Alignment struct {
	Sampled  int
	Trained  int // mask 1 in exactly one row
	Unscored int // no usable log-probability: mask 0
	Trimmed  int // replaced by DriftRealign
	Cut      int // beyond MaxRowTokens
	Lost     int // of quarantined calls

	// LostCalls are the indexes of the quarantined calls, CutCalls of those beyond
	// MaxRowTokens. Both are valid until the next Align.
	LostCalls, CutCalls []int32

	// Forks counts rows begun because a prompt diverged, Realigned the repairs that
	// avoided one, EmptyRows the rows left out for want of a trainable token.
	Forks, Realigned, EmptyRows int
}

// An Aligner turns the calls of a sample into rows. It keeps small scratch memory
// and is not safe for concurrent use: give each worker its own.
type Aligner struct {
	cfg AlignConfig
}

// NewAligner returns an Aligner.
func NewAligner(cfg AlignConfig) *Aligner { return &Aligner{cfg: cfg} }

// Align appends the rows of one sample to dst.
func (a *Aligner) Align(dst []Row, calls []Call) ([]Row, Alignment, error) { panic("todo") }
