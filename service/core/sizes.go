package core

// MaxMessage is the largest message in bytes, in and out.
const MaxMessage = 36 << 20

// MaxContent is the largest text and decoded attachments, in bytes, of a message made by the API.
const MaxContent = 25 << 20

// MaxRequest is the largest request in bytes; files in it are in base64.
const MaxRequest = 35 << 20
