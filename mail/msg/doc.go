// Package msg reads and writes Internet messages (RFC 5322, MIME): it parses any bytes that arrive
// into parts, decodes the displayed text, and composes the messages that we send. It does not know
// where messages are kept, who may see them, or how they travel.
package msg

// Limits on what is parsed from one message. What exceeds a limit is skipped, not refused: its
// bytes still belong to the part that contains them.
const (
	MaxDepth      = 32        // levels of parts, the root included; a multipart or message at the last level becomes a leaf
	MaxParts      = 1000      // parts in one tree, the root included
	MaxHeader     = 256 << 10 // bytes of one header block that are read
	MaxAddresses  = 1000      // addresses in one envelope, all fields together
	MaxReferences = 100       // message ids in References and In-Reply-To: the first and the newest are kept
	MaxText       = 2048      // bytes of a decoded subject, description or display name
	MaxParams     = 64        // parameters of one Content-Type or Content-Disposition
	MaxParamValue = 1024      // bytes of one decoded parameter
)

const (
	maxTreeText  = 1 << 20 // bytes of all texts stored in one tree
	maxBoundary  = 256     // bytes of a boundary; RFC 2046 §5.1.1 allows 70
	maxMessageID = 998     // bytes of a message id, one header line
	scanBuffer   = 32 << 10
)
