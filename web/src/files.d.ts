// Texts that the bundler takes in as they are.
declare module '*.go' { const text: string; export default text }
declare module '*.py' { const text: string; export default text }
declare module '*.sh' { const text: string; export default text }
declare module '*.mjs' { const text: string; export default text }
declare module '*.css' {}

// The path of the icon, which the bundler puts in.
declare const ICON: string

// The path of the script that reads PDFs in a worker, likewise.
declare const PDF_WORKER: string
