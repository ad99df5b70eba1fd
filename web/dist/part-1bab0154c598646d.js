import{a,b,c,d,e,f}from"./part-a8c4cc7aa3db8f44.js";import"./part-a98df2276e650f7d.js";export{b as EditRule,f as ReplyFields,a as Rules,c as Vacation,d as replyOf,e as saveReply};
