// Package pace decides when the next group of a run may begin, so that a trainer that takes
// groups while the run goes on gets them neither too many nor too old. It holds groups back
// and never discards one: what is discarded is the long ones first, and the data then looks
// shorter than what the policy does.
//
// Four rules, each of them optional, and a switch:
//
//	MaxAhead     at most K groups are begun and not yet acknowledged, filtered or failed
//	MaxLag       no group begins that would arrive more than K versions old
//	UntilGroups  no group begins that is not needed to have N informative ones
//	Pause        nothing begins until Resume
//
// Groups begin in the order in which the caller has them: a [Pacer] holds the next one back,
// and all others wait behind it. A group that has begun is never held for its age: that would
// only make the samples of it older that are there already. Pause holds the rest of it too.
//
// # Lag
//
// The lag of a group is the number of versions that its policy is behind when it arrives:
// the version at the moment when it is whole, less the version of its oldest token. If no
// version is proven for some token, the version counts that was set when the group began. No
// token is older than that, so the lag is rather told too high than too low.
//
// Two means foretell it:
//
//	D   how long a group takes from its first sample to the moment when it is whole
//	T   how long a version lasts
//
//	version v-1         v, set e ago             the next, in r
//	──────────┼─────────────┼──────────●─────────────┼───────────────┼───────
//	                              now  ├──────── D ────────┤ arrives, lag 1
//
// A group may begin if D ≤ r + K·T, where r is T - e. A version that is overdue (e > T) is
// expected after as long again as it is overdue, so that r is e - T: the longer it did not
// come, the less likely it comes next. A trainer that waits for groups, while they wait for
// its version, therefore gets them at the latest D after the version was due.
//
// If groups take longer than K + 1 versions, none can arrive in time. Then one at a time
// begins, as early in a version as makes it as new as it can be, so that arrivals do not end.
// If fewer than two versions were ever set there is no T, and nothing is held back for its
// age. The time of a pause is in no mean.
//
// D is not the mean of the groups that have arrived. Short ones arrive first, and a group that
// is in progress for long has told much by not being there. D is instead the time that all
// groups were in progress, those included that still are, by the number that arrived. That is
// the estimate of a mean from censored lives (exposure by events), and equals, where as many
// begin as end, the mean by Little's law (Operations Research 9 (1961), 383), whatever the
// distribution. As long as few have arrived it may be far too high; so it is at most the
// time in which any group was in progress: nothing can have taken longer. Old groups weigh
// less: after W others a group weighs 1/e. W is 128, or four times the groups in progress if
// that is more, so that the long ones of one batch do not outweigh the short ones. A window
// over a fixed time would be empty after a pause, and too short for slow tasks. A group that
// failed is in neither number.
//
// T is a mean of the same kind over some eight versions.
//
// # Enough
//
// An informative group is one that is given to the trainer. The groups in progress count by
// the share p of informative ones among those decided: a group begins only if the informative
// ones and p times those in progress are fewer than N. p begins at 1 and weighs that as much
// as one group, so at first N groups are in progress and not N/p.
package pace
