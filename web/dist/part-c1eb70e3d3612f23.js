import{a,b,c}from"./part-9f4bfc82b262b914.js";import"./part-a3a45a8a66e00df3.js";export{b as EditRule,a as Rules,c as Vacation};
