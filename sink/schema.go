package sink

// SchemaVersion is the version of the columns of StoredRow and StoredFailure. A
// column is never changed or removed within a version; a reader refuses shards of
// a version it does not know.
const SchemaVersion = 1

// The key-values that the package itself writes into each shard.
const (
	metaSchemaVersion = "rollout.schema_version"
	metaRunID         = "rollout.run_id"
	metaKind          = "rollout.kind"
)

// A StoredRow is one row of a data shard: a training sequence of T tokens in K
// spans with the facts of its sample. Its fields, in order, are the columns of
// schema version 1, and its tags are the only place that says how they are
// encoded in Parquet:
//
//   - the schema of the file must be the one of this struct, else parquet-go
//     falls back to reflection and is six times slower, without a word;
//   - every nullable scalar is a pointer: on plain values `optional` writes wrong
//     nulls;
//   - no codec in a tag: it would mean the codec's slow default level;
//   - no dict on token lists: the fast reader takes their pages as they are;
//   - int8 lists are written with delta, ids plain, logprobs split by byte: the
//     smallest for each.
type StoredRow struct {
	// SampleKey is the identity for exactly-once: the digest of the task and
	// SampleIndex.
	SampleKey string `parquet:"sample_key"`
	TaskID    string `parquet:"task_id"`
	GroupID   string `parquet:"group_id"`
	// RolloutID is shared by the rows of a sample.
	RolloutID   string `parquet:"rollout_id"`
	SampleIndex int32  `parquet:"sample_index"`
	GroupSize   int32  `parquet:"group_size"`
	Attempt     int32  `parquet:"attempt"`
	// SegmentIndex of SegmentCount is the row's place among the rows of its sample.
	SegmentIndex int32 `parquet:"segment_index"`
	SegmentCount int32 `parquet:"segment_count"`

	// InputIDs, LossMask and Logprobs have length T. See tokenize.Row.
	InputIDs []int32   `parquet:"input_ids,list"`
	LossMask []int8    `parquet:"loss_mask,list" parquet-element:",delta"`
	Logprobs []float32 `parquet:"logprobs,list" parquet-element:",split"`
	// Versions has length T, or is nil: unknown.
	Versions []int32 `parquet:"versions,list,optional"`
	// TurnOffsets has length K+1, TurnRoles length K.
	TurnOffsets []int32 `parquet:"turn_offsets,list" parquet-element:",delta"`
	TurnRoles   []int8  `parquet:"turn_roles,list"`
	// PromptLength is the number of tokens before the first sampled one.
	PromptLength int32 `parquet:"prompt_length"`

	// Reward is nil where the sample was not scored.
	Reward        *float64 `parquet:"reward,optional"`
	RewardDetails *string  `parquet:"reward_details,optional"` // JSON
	Status        string   `parquet:"status,dict"`
	StopReason    string   `parquet:"stop_reason,dict"`
	// FinishReasons has one entry per call of the row: stop, length, or another word of
	// the engine; empty where unknown. A call that ended with abort is in no row.
	FinishReasons []string `parquet:"finish_reasons,list" parquet-element:",dict"`
	// Truncated is true where Flags holds cut or length, and nowhere else. See "How a
	// row ends" of the package.
	Truncated    bool   `parquet:"truncated"`
	Verification string `parquet:"verification,dict"`
	PromptSource string `parquet:"prompt_source,dict"`
	// Divergence is a JSON object, as tokenize.Row.AppendDivergence writes it: call,
	// offset, kind, row and prompt say why a row that is a fork is one; realigned
	// lists the same five for each output whose end was replaced. Nil where there is
	// neither, as in most rows.
	Divergence *string  `parquet:"divergence,optional"`
	Flags      []string `parquet:"flags,list" parquet-element:",dict"`
	Unscored   int32    `parquet:"n_unscored"`
	Trimmed    int32    `parquet:"n_trimmed"`

	// The sampling parameters that were in force; nil where unknown.
	Temperature  *float32 `parquet:"temperature,optional"`
	TopP         *float32 `parquet:"top_p,optional"`
	TopK         *int32   `parquet:"top_k,optional"`
	MaxNewTokens *int32   `parquet:"max_new_tokens,optional"`

	Model   string   `parquet:"model,dict"`
	AgentID string   `parquet:"agent_id"`
	RunIDs  []string `parquet:"run_ids,list"`
	// StepIDs has one entry per call of the row, empty where unknown.
	StepIDs []string `parquet:"step_ids,list"`

	// The server's own sums over the sample.
	PromptTokens     int64 `parquet:"prompt_tokens"`
	CompletionTokens int64 `parquet:"completion_tokens"`
	Steps            int32 `parquet:"steps"`

	// StartedAt is in microseconds since 1970, UTC.
	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)"`
	DurationMS int64 `parquet:"duration_ms"`
	// WorkingMS leaves out queueing and backoff.
	WorkingMS int64 `parquet:"working_ms"`

	Messages *string `parquet:"messages,optional"` // JSON
	Metadata *string `parquet:"metadata,optional"` // JSON
}

// A StoredFailure is one row of a shard of failures: a sample, or one call of it,
// that must not be trained on. Its fields, in order, are the columns.
type StoredFailure struct {
	SampleKey   string `parquet:"sample_key"`
	TaskID      string `parquet:"task_id"`
	GroupID     string `parquet:"group_id"`
	RolloutID   string `parquet:"rollout_id"`
	SampleIndex int32  `parquet:"sample_index"`
	GroupSize   int32  `parquet:"group_size"`
	Attempt     int32  `parquet:"attempt"`

	// Class, Stage, Reason and Error are those of tokenize.Failure.
	Class  string `parquet:"class,dict"`
	Stage  string `parquet:"stage,dict"`
	Reason string `parquet:"reason,dict"`
	Error  string `parquet:"error"`
	// Call is the index of the call within the sample, or -1: the whole sample.
	Call int32 `parquet:"call"`

	// OutputIDs is what is left of the sampled tokens. Logprobs belongs to it and
	// is NaN where the server gave none: unlike in data, NaN is allowed here. It
	// may differ in length where that is what failed.
	OutputIDs []int32   `parquet:"output_ids,list"`
	Logprobs  []float32 `parquet:"logprobs,list" parquet-element:",split"`
	Text      string    `parquet:"text"`

	Status     string   `parquet:"status,dict"`
	StopReason string   `parquet:"stop_reason,dict"`
	Model      string   `parquet:"model,dict"`
	AgentID    string   `parquet:"agent_id"`
	RunIDs     []string `parquet:"run_ids,list"`

	PromptTokens     int64 `parquet:"prompt_tokens"`
	CompletionTokens int64 `parquet:"completion_tokens"`
	Steps            int32 `parquet:"steps"`

	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)"`
	DurationMS int64 `parquet:"duration_ms"`
	WorkingMS  int64 `parquet:"working_ms"`

	Messages *string `parquet:"messages,optional"` // JSON
	Metadata *string `parquet:"metadata,optional"` // JSON
}
