package core

// MaxMessage is the most bytes of one message, in and out.
const MaxMessage = 36 << 20
