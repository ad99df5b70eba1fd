import{a,b,c,d,e,f}from"./part-4f6169f4b1fb2552.js";import"./part-b91c9e60196bd878.js";export{b as EditRule,f as ReplyFields,a as Rules,c as Vacation,d as replyOf,e as saveReply};
