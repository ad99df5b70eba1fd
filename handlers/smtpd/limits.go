package smtpd

import "time"

// Limits are what one client, and all of them together, may use. Times are of the real clock.
type Limits struct {
	Conns           int // at once
	ConnsPerAddress int // of these from one address (IPv4), or one /64 (IPv6)
	ConnsPerNetwork int // of these from one /24 or /48

	MessagesPerMinute   int // of one address; a network may have four times as many
	RecipientsPerMinute int
	ErrorsPerMinute     int // unknown recipients and failed log-ins

	Messages int   // in one connection
	Commands int   // in one connection, without any that achieves something
	Unknown  int   // recipients of one connection that are refused
	Logins   int   // that fail in one connection
	Rcpts    int   // of one message
	Size     int64 // of one message, bytes

	Idle      time.Duration // until a whole command has come
	Session   time.Duration // of one connection; what is then being received may still end
	BodyIdle  time.Duration // between two pieces of a message
	BodyGrace time.Duration // before Rate is asked of a message
	Rate      int64         // bytes per second that a message must come at, on average
	Handshake time.Duration // of TLS
	Write     time.Duration // until the peer has taken our answers
	Grace     time.Duration // what is being received when Run is told to stop gets this long
}

// DefaultLimits are fit for a public server.
func DefaultLimits() Limits {
	return Limits{
		Conns: 2000, ConnsPerAddress: 50, ConnsPerNetwork: 200,
		MessagesPerMinute: 1200, RecipientsPerMinute: 6000, ErrorsPerMinute: 300,
		Messages: 10_000, Commands: 250, Unknown: 20, Logins: 3, Rcpts: 1000, Size: 36 << 20,
		Idle: 5 * time.Minute, Session: 4 * time.Hour, BodyIdle: 3 * time.Minute, BodyGrace: time.Minute, Rate: 1 << 10,
		Handshake: 30 * time.Second, Write: time.Minute, Grace: 10 * time.Second,
	}
}
