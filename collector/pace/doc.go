// Package pace decides when the next group of a run can begin. A trainer that takes groups during
// the run then gets neither too many groups nor groups that are too old. The package holds groups
// back but does not discard any. Discarding would affect long groups first and bias the data
// towards short groups.
//
// There are three optional rules and two switches:
//
//	MaxAhead     at most K groups have begun and are not yet acknowledged, filtered or failed
//	MaxLag       no group begins that would be more than K versions old when it is taken
//	UntilGroups  no group begins that is not needed to have N informative groups
//	Pause        nothing begins until Resume
//	HoldUnread   nothing begins while the reader has too many unread events
//
// Groups begin in the caller's order. A [Pacer] holds the next group back, and all other groups
// wait behind it. A group that has begun is never held for its age, but the switches also hold its
// remaining samples.
//
// # Lag
//
// The lag of a group is the number of versions that its policy is behind when the group becomes
// whole: the current version at that time, minus the version of the group's oldest token. If the
// version of any token is not proven, the version at the time the group began is used instead. No
// token is older than that version, so the lag is an upper bound. If an earlier process began such
// a group, its lag is unknown.
//
// The expected lag of a new group follows from the groups ahead of it. A trainer takes B groups per
// version. N groups are ahead of a group that begins now. These are the groups that the trainer has
// taken since it set the version, the groups that wait for the trainer, and the groups in progress.
// So the trainer sets N/B versions, rounded down, before it takes the new group. The group can
// begin if that number is at most K:
//
//	K = 1, B = 4    taken   wait   in progress
//	N = 7             ● ●    ● ●      ● ● ●       ○ begins: one version is set before it
//	N = 8             ● ●    ● ●     ● ● ● ●      ○ is held: two would be set before it
//
// In the long run N/B is D/T, the mean time D of a group divided by the time T that a version
// lasts: Little's law (Operations Research 9 (1961), 383). But unlike D/T, N/B is right at once
// when a batch begins or a trainer waits. If only a share p of the groups is informative, each
// group in progress counts as p groups.
//
// B is the maximum over the last eight versions, not the mean. Otherwise a trainer with batches of
// different sizes would wait for groups that in turn wait for a new version. B is unknown if fewer
// than two versions were ever set, or if no group was acknowledged between them. While B is
// unknown, no group is held for its age.
//
// A trainer can still need more groups for a version than it ever took before. So if no group is in
// progress and no version is set within T, another B groups can begin after a further D. This
// repeats after each such wait.
//
// # How long a group takes
//
// D is not the mean of the groups that have arrived, because short groups arrive first. D is the
// total time that all groups were in progress, including unfinished ones, divided by the number of
// arrivals. This is how a mean is estimated from censored lifetimes (exposure by events). If as
// many groups begin as end, D equals the mean for any distribution, by Little's law. After few
// arrivals, D can be far too high. So D is limited to the total time in which any group was in
// progress.
//
// Old groups count less: after W more groups, a group has the weight 1/e. W is 128, or four times
// the number of groups in progress if that is more. Otherwise the long groups of a batch would
// outweigh its short groups. Groups that failed, or that an earlier process began, do not count.
//
// T is a mean over about eight versions. Neither D nor T includes paused time.
//
// # Enough
//
// An informative group is a group that is given to the trainer. p is the share of informative
// groups among the finished ones. A group begins only while the number of informative groups plus p
// times the number of groups in progress is less than N. The estimate of p starts at 1, with the
// weight of one group. So at first, N groups are in progress and not N/p.
package pace
