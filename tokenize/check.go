package tokenize

// A TextEncoder turns text into token ids. The literal source needs one for the
// texts of tools.
type TextEncoder interface {
	// AppendTokens appends the ids of text to dst.
	AppendTokens(dst []int32, text string) ([]int32, error)
}

// CheckTurn applies the rules for one turn.
func CheckTurn(t *Turn) error { panic("todo") }

// CallsFromTurns appends one Call for each assistant turn.
func CallsFromTurns(dst []Call, turns []Turn) ([]Call, error) { panic("todo") }

// Literal makes calls of SourceLiteral.
type Literal struct {
	Encoder TextEncoder
	context []int32
}

// Calls appends one Call for each assistant turn.
func (l *Literal) Calls(dst []Call, turns []Turn) ([]Call, error) { panic("todo") }

// Counts are the server's own sums over the calls of a sample; -1 where not given.
type Counts struct {
	PromptTokens, CompletionTokens int64
	Steps                          int32
}

// CheckCounts compares calls with the server's sums.
func CheckCounts(calls []Call, want Counts) error { panic("todo") }

// Reset empties r and keeps its memory.
func (r *Row) Reset() { panic("todo") }

// AppendSampled appends what the policy sampled in one call.
func (r *Row) AppendSampled(ids []int32, logprobs []float32, version int32) { panic("todo") }

// AppendContext appends tokens that the policy did not sample.
func (r *Row) AppendContext(role Role, ids []int32) { panic("todo") }

// Check verifies every invariant of r.
func (r *Row) Check(vocab int) error { panic("todo") }

// AppendJSON appends d as a JSON object.
func (d *Divergence) AppendJSON(dst []byte) []byte { panic("todo") }
